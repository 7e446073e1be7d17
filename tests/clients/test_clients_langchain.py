"""LangChain's OpenAI and Cohere classes, unmodified."""

from __future__ import annotations

import asyncio

import openai
import pytest
from closeness import assert_close, assert_ranked
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from serving import MODEL, QUERY, TEXTS, Server

LONG_TEXT = "The water of the cave is clear. " * 400


@pytest.fixture(scope="module")
def embeddings(server: Server) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(model=MODEL, base_url=f"{server.url}/v1", api_key="none", check_embedding_ctx_length=False)


def test_ids_of_another_vocabulary_are_refused_with_the_cure(server: Server) -> None:
    """By itself the class sends token ids of OpenAI's models; the model has no such ids."""
    embeddings = OpenAIEmbeddings(model=MODEL, base_url=f"{server.url}/v1", api_key="none")
    before = server.num_requests(400)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        embeddings.embed_documents(["antidisestablishmentarianism \N{GRINNING FACE}"])
    assert server.num_requests(400) == before + 1


def test_vectors_with_the_option(embeddings: OpenAIEmbeddings, server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        same = [item.embedding for item in client.embeddings.create(model=MODEL, input=TEXTS).data]
    found = embeddings.embed_documents(TEXTS)
    assert_close(found, same)
    assert_close(found, server.vectors(TEXTS))
    assert_close(embeddings.embed_query(TEXTS[3]), server.vectors(TEXTS[3:])[0])
    assert_close(asyncio.run(embeddings.aembed_documents(TEXTS)), server.vectors(TEXTS))


def test_many_and_long_texts_with_the_option(embeddings: OpenAIEmbeddings, server: Server) -> None:
    texts = [f"well {number}" for number in range(45)]
    before = server.num_requests(200)
    found = embeddings.embed_documents([*texts, LONG_TEXT], chunk_size=20)
    assert server.num_requests(200) == before + 3
    assert len(found) == len(texts) + 1
    some = [0, 19, 20, 44]
    assert_close([found[index] for index in some], server.vectors([texts[index] for index in some]))
    assert_close(found[-1], server.vectors([LONG_TEXT])[0])


def test_cohere_embeddings(server: Server) -> None:
    embeddings = CohereEmbeddings(model=MODEL, base_url=f"{server.url}/cohere", cohere_api_key="none")
    assert_close(embeddings.embed_documents(TEXTS), server.vectors(TEXTS))
    assert_close(embeddings.embed_query(TEXTS[0]), server.vectors(TEXTS[:1])[0])


def test_cohere_rerank(server: Server) -> None:
    reranker = CohereRerank(model="my-reranker", base_url=f"{server.url}/cohere", cohere_api_key="none", top_n=2)
    documents = [Document(text, metadata={"place": index}) for index, text in enumerate(TEXTS)]
    ranked = reranker.compress_documents(documents, QUERY)
    found = [(each.metadata["place"], each.metadata["relevance_score"]) for each in ranked]
    assert_ranked(found, server.ranking(TEXTS)[:2])
    assert [each.page_content for each in ranked] == [TEXTS[index] for index, _ in found]

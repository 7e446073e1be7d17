"""LlamaIndex's OpenAI, OpenAI-like and TEI classes, unmodified."""

from __future__ import annotations

import asyncio

import openai
import pytest
from closeness import assert_close, assert_ranked
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TextEmbeddingInferenceRerank
from serving import MODEL, QUERY, TEXTS, Server

LONG_TEXT = "The water of the cave is clear. " * 400


@pytest.mark.parametrize("kind", [OpenAIEmbedding, OpenAILikeEmbedding])
def test_openai(server: Server, kind: type[OpenAIEmbedding]) -> None:
    embedding = kind(model_name=MODEL, api_base=f"{server.url}/v1", api_key="none", embed_batch_size=3)
    assert_close(embedding.get_text_embedding_batch(TEXTS), server.vectors(TEXTS))
    assert_close(embedding.get_query_embedding(TEXTS[0]), server.vectors(TEXTS[:1])[0])


def test_a_wrong_request_is_refused_once(server: Server) -> None:
    embedding = OpenAILikeEmbedding(model_name="nope", api_base=f"{server.url}/v1", api_key="none")
    before = server.num_requests(404)
    with pytest.raises(openai.NotFoundError):
        embedding.get_query_embedding("a")
    assert server.num_requests(404) == before + 1


def test_an_index_finds_the_nearest_text(server: Server) -> None:
    embedding = OpenAILikeEmbedding(model_name=MODEL, api_base=f"{server.url}/v1", api_key="none")
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    (best,) = index.as_retriever(similarity_top_k=1).retrieve("When must I pay the state?")
    assert best.text == TEXTS[2]


@pytest.fixture
def tei(server: Server) -> TextEmbeddingsInference:
    return TextEmbeddingsInference(model_name=MODEL, base_url=f"{server.url}/tei", embed_batch_size=3)


def test_tei(tei: TextEmbeddingsInference, server: Server) -> None:
    assert_close(tei.get_text_embedding_batch(TEXTS), server.vectors(TEXTS))
    assert_close(tei.get_query_embedding(TEXTS[0]), server.vectors(TEXTS[:1])[0])
    assert_close(asyncio.run(tei.aget_text_embedding_batch(TEXTS)), server.vectors(TEXTS))


def test_tei_on_the_bare_path_with_a_long_text(server: Server) -> None:
    embedding = TextEmbeddingsInference(model_name=MODEL, base_url=server.url)
    assert_close(embedding.get_text_embedding(LONG_TEXT), server.vectors([LONG_TEXT])[0])


@pytest.mark.parametrize("base", ["/tei", ""])
def test_tei_rerank(server: Server, base: str) -> None:
    reranker = TextEmbeddingInferenceRerank(base_url=server.url + base, top_n=3)
    nodes = [NodeWithScore(node=TextNode(text=text, metadata={"place": i})) for i, text in enumerate(TEXTS)]
    ranked = reranker.postprocess_nodes(nodes, query_str=QUERY)
    assert_ranked([(node.metadata["place"], node.score) for node in ranked], server.ranking(TEXTS)[:3])

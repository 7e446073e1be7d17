"""LiteLLM, unmodified: its providers for the services whose APIs the server speaks."""

from __future__ import annotations

import litellm
import pytest
from closeness import assert_close, assert_ranked
from serving import MODEL, QUERY, TEXTS, Server

EMBEDDING = {
    "openai": "/openai/v1",
    "hosted_vllm": "/v1",
    "cohere": "/cohere/v1/embed",
    "jina_ai": "/jina/v1",
    "voyage": "/voyage/v1",
}
RERANK = {
    "hosted_vllm": "/vllm",
    "cohere": "/cohere/v1/rerank",
    "jina_ai": "/jina/v1",
    "voyage": "/voyage/v1",
}


@pytest.mark.parametrize("provider", EMBEDDING)
def test_embedding(server: Server, provider: str) -> None:
    base = server.url + EMBEDDING[provider]
    answer = litellm.embedding(model=f"{provider}/{MODEL}", input=TEXTS, api_base=base, api_key="none")
    assert_close([item["embedding"] for item in answer.data], server.vectors(TEXTS))
    assert answer.usage.prompt_tokens > len(TEXTS)


@pytest.mark.parametrize("provider", RERANK)
def test_rerank_with_documents(server: Server, provider: str) -> None:
    answer = litellm.rerank(
        model=f"{provider}/my-reranker",
        query=QUERY,
        documents=TEXTS,
        top_n=3,
        return_documents=True,
        api_base=server.url + RERANK[provider],
        api_key="none",
    )
    found = [(each["index"], each["relevance_score"]) for each in answer.results]
    assert_ranked(found, server.ranking(TEXTS)[:3])
    assert [each["document"]["text"] for each in answer.results] == [TEXTS[index] for index, _ in found]


def test_teis_provider_gives_all(server: Server) -> None:
    answer = litellm.rerank(
        model="huggingface/my-reranker", query=QUERY, documents=TEXTS, api_base=f"{server.url}/tei", api_key="none"
    )
    found = [(each["index"], each["relevance_score"]) for each in answer.results]
    assert_ranked(found, server.ranking(TEXTS))
    assert [each["document"]["text"] for each in answer.results] == [TEXTS[index] for index, _ in found]


def test_the_bare_path_with_version_and_extra_fields(server: Server) -> None:
    """The proxy takes the version off, and sends fields that some of its other providers have."""
    answer = litellm.rerank(
        model="hosted_vllm/my-reranker",
        query=QUERY,
        documents=[{"text": text} for text in TEXTS],
        rank_fields=["text"],
        max_tokens_per_doc=40,
        return_documents=False,
        api_base=f"{server.url}/v1",
    )
    assert_ranked([(each["index"], each["relevance_score"]) for each in answer.results], server.ranking(TEXTS))
    assert all(each.get("document") is None for each in answer.results)


def test_infinitys_provider_without_documents(server: Server) -> None:
    """Infinity gives documents as strings, the server as objects."""
    answer = litellm.rerank(
        model="infinity/my-reranker", query=QUERY, documents=TEXTS, return_documents=False, api_base=server.url
    )
    assert_ranked([(each["index"], each["relevance_score"]) for each in answer.results], server.ranking(TEXTS))


def test_errors_have_their_classes(server: Server) -> None:
    base = f"{server.url}/openai/v1"
    with pytest.raises(litellm.NotFoundError, match="not served here"):
        litellm.embedding(model="openai/nope", input=["a"], api_base=base, api_key="none")
    with pytest.raises(litellm.BadRequestError, match="dimensions"):
        litellm.embedding(model=f"openai/{MODEL}", input=["a"], dimensions=7, api_base=base, api_key="none")

"""The `cohere` package, unmodified. Runs with two versions: langchain-cohere's, and the newest."""

from __future__ import annotations

import base64

import cohere
import numpy as np
import pytest
from closeness import assert_close, assert_ranked, bits_of, int8_of
from serving import MODEL, QUERY, TEXTS, Server

TYPES = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
MAX_TEXTS = 96
"""What the client sends in one request."""


@pytest.fixture(scope="module", params=["/cohere", ""])
def base_url(request: pytest.FixtureRequest, server: Server) -> str:
    return server.url + str(request.param)


@pytest.fixture(scope="module")
def v2(base_url: str) -> cohere.ClientV2:
    return cohere.ClientV2(base_url=base_url, api_key="none")


@pytest.fixture(scope="module")
def v1(base_url: str) -> cohere.Client:
    return cohere.Client(base_url=base_url, api_key="none")


def test_every_type_from_one_request(v2: cohere.ClientV2, server: Server) -> None:
    answer = v2.embed(model=MODEL, texts=TEXTS, input_type="search_document", embedding_types=TYPES)
    found = answer.embeddings
    vectors = np.array(found.float_, dtype=np.float32)
    assert_close(vectors, server.vectors(TEXTS))
    np.testing.assert_array_equal(found.int8, int8_of(vectors))
    np.testing.assert_array_equal(found.uint8, int8_of(vectors).astype(int) + 128)
    np.testing.assert_array_equal(found.ubinary, bits_of(vectors))
    np.testing.assert_array_equal(found.binary, bits_of(vectors).astype(int) - 128)
    decoded = [np.frombuffer(base64.b64decode(text), dtype="<f4") for text in found.base64]
    np.testing.assert_array_equal(decoded, vectors)
    assert answer.meta.billed_units.input_tokens > len(TEXTS)


def test_version_1_sends_many_texts_in_batches(v1: cohere.Client, server: Server) -> None:
    texts = [f"the water is {number} metres deep" for number in range(MAX_TEXTS + 4)]
    before = server.num_requests(200)
    answer = v1.embed(model=MODEL, texts=texts, input_type="search_query")
    assert server.num_requests(200) == before + 2
    assert len(answer.embeddings) == len(texts)
    some = [0, 1, MAX_TEXTS - 1, MAX_TEXTS, MAX_TEXTS + 3]
    assert_close([answer.embeddings[index] for index in some], server.vectors([texts[index] for index in some]))


def test_version_1_by_type(v1: cohere.Client, server: Server) -> None:
    answer = v1.embed(model=MODEL, texts=TEXTS, embedding_types=["float", "ubinary"])
    assert_close(answer.embeddings.float_, server.vectors(TEXTS))
    np.testing.assert_array_equal(answer.embeddings.ubinary, bits_of(answer.embeddings.float_))


def test_too_many_texts_for_version_2(server: Server) -> None:
    client = cohere.ClientV2(base_url=f"{server.url}/cohere", api_key="none")
    with pytest.raises(cohere.BadRequestError, match="97 items; at most 96"):
        client.embed(model=MODEL, texts=["a"] * (MAX_TEXTS + 1), input_type="search_query", embedding_types=["float"])


def test_rerank(v1: cohere.Client, v2: cohere.ClientV2, server: Server) -> None:
    expected = server.ranking(TEXTS)
    for client in (v1, v2):
        answer = client.rerank(model="my-reranker", query=QUERY, documents=TEXTS)
        assert_ranked([(each.index, each.relevance_score) for each in answer.results], expected)
        answer = client.rerank(model="my-reranker", query=QUERY, documents=TEXTS, top_n=2)
        assert_ranked([(each.index, each.relevance_score) for each in answer.results], expected[:2])


def test_rerank_gives_documents_back(v1: cohere.Client, server: Server) -> None:
    documents = [{"text": text, "page": str(page)} for page, text in enumerate(TEXTS)]
    answer = v1.rerank(model="my-reranker", query=QUERY, documents=documents, return_documents=True)
    assert_ranked([(each.index, each.relevance_score) for each in answer.results], server.ranking(TEXTS))
    assert [each.document.text for each in answer.results] == [TEXTS[each.index] for each in answer.results]


def test_errors_have_their_classes_and_are_not_retried(v2: cohere.ClientV2, server: Server) -> None:
    before = server.num_requests(400), server.num_requests(404)
    with pytest.raises(cohere.NotFoundError) as unknown:
        v2.embed(model="nope", texts=["a"], input_type="search_query", embedding_types=["float"])
    with pytest.raises(cohere.BadRequestError) as refused:
        v2.embed(model=MODEL, texts=["a"], input_type="search_query", embedding_types=["float"], output_dimension=7)
    assert "not served here" in unknown.value.body["message"]
    assert "output_dimension" in refused.value.body["message"]
    assert (server.num_requests(400), server.num_requests(404)) == (before[0] + 1, before[1] + 1)

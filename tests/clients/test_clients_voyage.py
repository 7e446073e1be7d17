"""The `voyageai` package, unmodified."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import voyageai
from closeness import assert_close, assert_ranked, bits_of, int8_of
from serving import MODEL, QUERY, TEXTS, Server


@pytest.fixture(scope="module", params=["/voyage/v1", "/v1"])
def client(request: pytest.FixtureRequest, server: Server) -> voyageai.Client:
    return voyageai.Client(base_url=server.url + request.param, api_key="none", max_retries=2)


def test_vectors(client: voyageai.Client, server: Server) -> None:
    answer = client.embed(TEXTS, model=MODEL, input_type="document")
    assert_close(answer.embeddings, server.vectors(TEXTS))
    assert answer.total_tokens > len(TEXTS)


def test_asynchronous(server: Server) -> None:
    client = voyageai.AsyncClient(base_url=f"{server.url}/voyage/v1", api_key="none")
    answer = asyncio.run(client.embed(TEXTS, model=MODEL))
    assert_close(answer.embeddings, server.vectors(TEXTS))


def test_small_types(client: voyageai.Client) -> None:
    vectors = client.embed(TEXTS, model=MODEL).embeddings
    expected = {
        "int8": int8_of(vectors),
        "uint8": int8_of(vectors).astype(int) + 128,
        "ubinary": bits_of(vectors),
        "binary": bits_of(vectors).astype(int) - 128,
    }
    for name, values in expected.items():
        found = client.embed(TEXTS, model=MODEL, output_dtype=name).embeddings
        assert np.asarray(found).dtype.kind == "i"
        np.testing.assert_array_equal(found, values)


def test_pieces_in_their_context(client: voyageai.Client, server: Server) -> None:
    inputs = [TEXTS[:3], TEXTS[3:]]
    answer = client.contextualized_embed(inputs=inputs, model=MODEL)
    for pieces, found in zip(inputs, answer.results, strict=True):
        body = {"model": MODEL, "input": pieces, "late_chunking": True}
        expected = server.post("/jina/v1/embeddings", **body)["data"]
        assert_close(found.embeddings, [item["embedding"] for item in expected])
    assert np.abs(answer.results[0].embeddings[0] - server.vectors(TEXTS[:1])[0]).max() > 0.01


def test_rerank(client: voyageai.Client, server: Server) -> None:
    answer = client.rerank(QUERY, TEXTS, model="my-reranker", top_k=3)
    assert_ranked([(each.index, each.relevance_score) for each in answer.results], server.ranking(TEXTS)[:3])
    assert [each.document for each in answer.results] == [TEXTS[each.index] for each in answer.results]


def test_errors_have_their_class_and_are_not_retried(client: voyageai.Client, server: Server) -> None:
    before = server.num_requests(400)
    with pytest.raises(voyageai.error.InvalidRequestError, match="not served here"):
        client.embed(["a"], model="nope")
    with pytest.raises(voyageai.error.InvalidRequestError, match="output_dimension"):
        client.embed(["a"], model=MODEL, output_dimension=7)
    assert server.num_requests(400) == before + 2

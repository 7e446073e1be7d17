"""Qdrant's client in its embedded mode stores and searches what the server gives, as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from closeness import assert_ranked
from qdrant_client import QdrantClient, models
from serving import QUERY, TEXTS, Server

KINDS = ("dense", "sparse", "multi_vector")


def encode(server: Server, model: str, texts: list[str], input_type: str) -> list[dict[str, Any]]:
    answer = server.post("/v1/encode", model=model, input=texts, input_type=input_type)
    return [{kind: item[kind] for kind in KINDS if kind in item} for item in answer["data"]]


def vectors_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return one answer as a point's vectors: only the sparse one is an object of the client's."""
    return item | ({"sparse": models.SparseVector(**item["sparse"])} if "sparse" in item else {})


def dense_score(query: list[float], document: list[float]) -> float:
    return float(np.dot(query, document) / np.linalg.norm(query) / np.linalg.norm(document))


def sparse_score(query: dict[str, Any], document: dict[str, Any]) -> float:
    weights = dict(zip(document["indices"], document["values"], strict=True))
    return sum(value * weights.get(index, 0.0) for index, value in zip(query["indices"], query["values"], strict=True))


def max_sim(query: list[list[float]], document: list[list[float]]) -> float:
    return float((np.array(query) @ np.array(document).T).max(axis=1).sum())


SCORES = {"dense": dense_score, "sparse": sparse_score, "multi_vector": max_sim}


def make_collection(qdrant: QdrantClient, documents: list[dict[str, Any]]) -> None:
    first = documents[0]
    configs = {}
    if "dense" in first:
        configs["dense"] = models.VectorParams(size=len(first["dense"]), distance=models.Distance.COSINE)
    if "multi_vector" in first:
        configs["multi_vector"] = models.VectorParams(
            size=len(first["multi_vector"][0]),
            distance=models.Distance.DOT,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
        )
    sparse = {"sparse": models.SparseVectorParams()} if "sparse" in first else None
    qdrant.create_collection("wells", vectors_config=configs, sparse_vectors_config=sparse)
    points = [models.PointStruct(id=index, vector=vectors_of(item)) for index, item in enumerate(documents)]
    qdrant.upsert("wells", points)


def search(qdrant: QdrantClient, kind: str, query: dict[str, Any]) -> list[tuple[int, float]]:
    hits = qdrant.query_points("wells", query=vectors_of(query)[kind], using=kind, limit=len(TEXTS)).points
    return [(int(hit.id), hit.score) for hit in hits]


def expected(kind: str, query: dict[str, Any], documents: list[dict[str, Any]]) -> list[tuple[int, float]]:
    scores = [SCORES[kind](query[kind], document[kind]) for document in documents]
    return sorted(enumerate(scores), key=lambda pair: -pair[1])


@pytest.fixture
def qdrant() -> Iterator[QdrantClient]:
    client = QdrantClient(":memory:")
    yield client
    client.close()


def test_three_kinds_from_one_pass(bge_m3: Server, qdrant: QdrantClient) -> None:
    documents = encode(bge_m3, "bge-m3", TEXTS, "document")
    (query,) = encode(bge_m3, "bge-m3", [QUERY], "query")
    assert set(query) == set(KINDS)
    make_collection(qdrant, documents)
    for kind in KINDS:
        assert_ranked(search(qdrant, kind, query), expected(kind, query, documents))


def test_splade(server: Server, qdrant: QdrantClient) -> None:
    documents = encode(server, "my-splade", TEXTS, "document")
    (query,) = encode(server, "my-splade", [QUERY], "query")
    make_collection(qdrant, documents)
    found = search(qdrant, "sparse", query)
    assert_ranked(found, expected("sparse", query, documents)[: len(found)])
    assert found[0][0] == 0


def test_max_sim_is_the_servers_own_score(server: Server, qdrant: QdrantClient) -> None:
    make_collection(qdrant, encode(server, "my-colbert", TEXTS, "document"))
    (query,) = encode(server, "my-colbert", [QUERY], "query")
    found = search(qdrant, "multi_vector", query)
    ranked = server.post("/cohere/v2/rerank", model="my-colbert", query=QUERY, documents=TEXTS)["results"]
    largest = ranked[0]["relevance_score"]
    assert_ranked(
        [(index, score / largest) for index, score in found],
        [(each["index"], each["relevance_score"] / largest) for each in ranked],
    )

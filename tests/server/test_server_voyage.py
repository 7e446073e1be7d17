"""Voyage's dialect: embeddings, contextualised embeddings, rerank, errors; values equal to the engine's."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from running import RunningServer, ask

from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water"]
LONG_TEXT = "the cat and a dog on the stone by the river " * 20
QUERY = "what is the river"
DTYPES = {"float": "<f4", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}


def post(kinds: RunningServer, route: str, prefix: str = "/voyage", **fields: Any) -> Any:
    answer = kinds.http.post(f"{prefix}/v1/{route}", json={"model": "dense", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def vectors(items: Any) -> Any:
    return np.asarray([item["embedding"] for item in items])


class TestEmbeddings:
    def test_shape(self, kinds: RunningServer) -> None:
        found = post(kinds, "embeddings", input=TEXTS)
        expected = ask(kinds.engines["dense"].embed(TEXTS))
        assert_close(vectors(found.pop("data")), np.asarray(expected))
        assert found == {"object": "list", "model": "dense", "usage": {"total_tokens": sum(expected.num_tokens)}}

    @pytest.mark.parametrize("input_type", ["query", "document"])
    def test_input_types(self, kinds: RunningServer, input_type: Any) -> None:
        found = post(kinds, "embeddings", input=TEXTS, input_type=input_type)
        expected = ask(kinds.engines["dense"].embed(TEXTS, input_type=input_type))
        assert_close(vectors(found["data"]), np.asarray(expected))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_base64_is_that_of_the_dtype(self, kinds: RunningServer, dtype: str) -> None:
        fields = {"input": TEXTS, "output_dtype": dtype, "output_dimension": 32}
        numbers = post(kinds, "embeddings", **fields)["data"]
        written = post(kinds, "embeddings", encoding_format="base64", **fields)["data"]
        decoded = [np.frombuffer(base64.b64decode(item["embedding"]), DTYPES[dtype]) for item in written]
        assert np.array_equal(np.stack(decoded), vectors(numbers).astype(DTYPES[dtype]))

    def test_long_texts_are_cut_unless_they_may_not_be(self, kinds: RunningServer) -> None:
        assert len(post(kinds, "embeddings", input=[LONG_TEXT], truncation=True)["data"]) == 1
        body = {"model": "dense", "input": ["a", LONG_TEXT], "truncation": False}
        answer = kinds.http.post("/voyage/v1/embeddings", json=body)
        assert answer.status_code == 400
        assert "input[1]" in answer.json()["detail"]

    def test_the_limit_of_texts_is_voyage_s_own_under_the_prefix(self, kinds: RunningServer) -> None:
        body = {"model": "dense", "input": ["a"] * 1001, "truncation": True}
        assert kinds.http.post("/v1/embeddings", json=body).status_code == 200
        answer = kinds.http.post("/voyage/v1/embeddings", json=body)
        assert answer.json() == {"detail": "`input` has 1001 items; at most 1000 fit into one request"}


class TestContextualized:
    @pytest.mark.parametrize("fields", [{}, {"input_type": "document"}, {"output_dimension": 16}])
    def test_values_are_the_engine_s(self, kinds: RunningServer, fields: dict[str, Any]) -> None:
        inputs = [TEXTS, ["the stone"], ["the light", "the fish and the bird"]]
        found = post(kinds, "contextualizedembeddings", inputs=inputs, **fields)
        engine_fields = {{"output_dimension": "dimensions"}.get(name, name): value for name, value in fields.items()}
        expected = ask(kinds.engines["dense"].embed_chunks(inputs, **engine_fields))
        assert [item["index"] for item in found["data"]] == [0, 1, 2]
        for item, chunks in zip(found["data"], expected, strict=True):
            assert_close(vectors(item["data"]), chunks.vectors)
            assert [each["index"] for each in item["data"]] == list(range(len(chunks)))
        assert found["usage"] == {"total_tokens": expected.usage.total_tokens}


class TestRerank:
    def test_data_and_top_k(self, kinds: RunningServer) -> None:
        found = post(kinds, "rerank", model="reranker", query=QUERY, documents=TEXTS, top_k=2, return_documents=True)
        expected = ask(kinds.engines["reranker"].rerank(QUERY, TEXTS, 2))
        assert [(each["index"], each["document"]) for each in found["data"]] == [
            (each.index, each.document) for each in expected
        ]
        scores = np.asarray([each["relevance_score"] for each in found["data"]])
        assert_close(scores, np.asarray([each.score for each in expected]))
        assert found["usage"] == {"total_tokens": expected.usage.total_tokens}
        assert set(found) == {"object", "data", "model", "usage"}

    def test_documents_stay_out_by_default(self, kinds: RunningServer) -> None:
        found = post(kinds, "rerank", model="reranker", query=QUERY, documents=TEXTS)
        assert all(set(each) == {"index", "relevance_score"} for each in found["data"])


@pytest.mark.parametrize(
    ("route", "fields", "status", "message"),
    [
        ("embeddings", {"input": []}, 400, "input is empty"),
        ("embeddings", {"input": ["a", 3]}, 400, "input"),
        ("embeddings", {"input": "a", "input_type": "nope"}, 400, "input_type 'nope' is not known here"),
        ("embeddings", {"input": "a", "output_dimension": 65}, 400, "output_dimension must be a whole number"),
        ("embeddings", {"input": "a", "output_dtype": "base64"}, 400, "`output_dtype`"),
        ("embeddings", {"input": "a", "encoding_format": "float"}, 400, "`encoding_format` should be 'base64'"),
        ("embeddings", {"input": "a", "model": "nope"}, 400, "'nope' is not served here"),
        ("contextualizedembeddings", {"inputs": []}, 400, "inputs"),
        ("contextualizedembeddings", {"inputs": [[]]}, 400, "inputs[0] is empty"),
        ("contextualizedembeddings", {"inputs": ["a"]}, 400, "`inputs[0]` should be a valid list"),
        ("contextualizedembeddings", {"inputs": [["a", ""]]}, 400, "inputs[0] has a chunk without tokens, number 1"),
        ("rerank", {"query": "a", "documents": ["b"], "top_k": 0}, 400, "top_k must be an integer of at least 1"),
        ("rerank", {"query": "a", "documents": ["b", LONG_TEXT], "truncation": False}, 400, "documents[1]"),
        ("rerank", {"query": "a", "documents": [{"text": "b"}]}, 400, "`documents[0]` should be a valid string"),
        ("nope", {}, 404, "no route POST /voyage/v1/nope"),
    ],
)
def test_error_body_is_voyage_s_own(
    kinds: RunningServer, route: str, fields: dict[str, Any], status: int, message: str
) -> None:
    answer = kinds.http.post(f"/voyage/v1/{route}", json={"model": "dense", **fields})
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["detail"]
    assert message in answer.json()["detail"]

"""Cohere's dialect: answers of both versions, errors, and values equal to the engine's."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from running import RunningServer, ask

from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water"]
LONG_TEXT = "the cat and a dog on the stone by the river " * 20
QUERY = "what is the river"


def embed(kinds: RunningServer, version: str = "v2", prefix: str = "/cohere", **fields: Any) -> Any:
    body = {"model": "dense", "texts": TEXTS, **fields}
    answer = kinds.http.post(f"{prefix}/{version}/embed", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rerank(kinds: RunningServer, version: str = "v2", prefix: str = "/cohere", **fields: Any) -> Any:
    body = {"model": "reranker", "query": QUERY, "documents": TEXTS, **fields}
    answer = kinds.http.post(f"{prefix}/{version}/rerank", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestEmbed:
    def test_version_1_without_types(self, kinds: RunningServer) -> None:
        found = embed(kinds, "v1")
        expected = ask(kinds.engines["dense"].embed(TEXTS))
        assert_close(np.asarray(found.pop("embeddings")), np.asarray(expected))
        assert found.pop("id")
        tokens = sum(expected.num_tokens)
        meta = {"api_version": {"version": "1"}, "billed_units": {"input_tokens": tokens}}
        assert found == {"response_type": "embeddings_floats", "texts": TEXTS, "meta": meta}

    @pytest.mark.parametrize("version", ["v1", "v2"])
    def test_by_type(self, kinds: RunningServer, version: str) -> None:
        found = embed(kinds, version, embedding_types=["float", "int8", "ubinary", "base64"])
        assert found["response_type"] == "embeddings_by_type"
        assert list(found["embeddings"]) == ["float", "int8", "ubinary", "base64"]
        floats = np.asarray(found["embeddings"]["float"], dtype=np.float32)
        decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in found["embeddings"]["base64"]]
        assert np.array_equal(np.stack(decoded), floats)
        assert np.array_equal(np.asarray(found["embeddings"]["int8"]), np.rint(floats * np.float32(127)))
        assert np.array_equal(np.asarray(found["embeddings"]["ubinary"]), np.packbits(floats >= 0, axis=1))

    def test_version_2_is_by_type_in_any_case(self, kinds: RunningServer) -> None:
        found = embed(kinds)
        expected = ask(kinds.engines["dense"].embed(TEXTS))
        assert_close(np.asarray(found["embeddings"].pop("float")), np.asarray(expected))
        assert found["embeddings"] == {}
        tokens = {"input_tokens": sum(expected.num_tokens)}
        assert found["meta"] == {"api_version": {"version": "2"}, "billed_units": tokens, "tokens": tokens}

    @pytest.mark.parametrize(
        ("word", "fields"),
        [
            ("search_query", {"input_type": "query"}),
            ("query", {"input_type": "query"}),
            ("search_document", {"input_type": "document"}),
            ("classification", {"prompt_name": "classification"}),
            ("clustering", {}),
        ],
    )
    def test_input_types(self, kinds: RunningServer, word: str, fields: dict[str, Any]) -> None:
        expected = ask(kinds.engines["dense"].embed(TEXTS, **fields))
        assert_close(np.asarray(embed(kinds, input_type=word)["embeddings"]["float"]), np.asarray(expected))

    @pytest.mark.parametrize("side", ["START", "END"])
    @pytest.mark.parametrize("size", [None, 9, 4096])
    def test_truncation(self, kinds: RunningServer, side: str, size: int | None) -> None:
        found = embed(kinds, texts=[LONG_TEXT], truncate=side, max_tokens=size)
        sides = {"START": "left", "END": "right"}
        engine = kinds.engines["dense"]
        expected = ask(engine.embed([LONG_TEXT], truncation_side=sides[side], max_tokens=size))  # type: ignore[arg-type]
        assert_close(np.asarray(found["embeddings"]["float"]), np.asarray(expected))
        assert found["meta"]["tokens"]["input_tokens"] == min(size or 64, 64)

    @pytest.mark.parametrize("fields", [{}, {"max_tokens": 9}])
    def test_no_truncation(self, kinds: RunningServer, fields: dict[str, Any]) -> None:
        body = {"model": "dense", "texts": [*TEXTS, LONG_TEXT], "truncate": "NONE", **fields}
        answer = kinds.http.post("/cohere/v2/embed", json=body)
        assert answer.status_code == 400
        assert "texts[3]" in answer.json()["message"]

    def test_inputs_of_one_text_part(self, kinds: RunningServer) -> None:
        inputs = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
        assert embed(kinds, texts=None, inputs=inputs)["embeddings"] == embed(kinds)["embeddings"]

    def test_half_a_character_comes_back_as_the_replacement(self, kinds: RunningServer) -> None:
        body = rb'{"model": "dense", "texts": ["half \ud83d emoji"]}'
        answer = kinds.http.post("/cohere/v2/embed", content=body, headers={"content-type": "application/json"})
        assert answer.json()["texts"] == ["half \N{REPLACEMENT CHARACTER} emoji"]

    def test_the_limit_of_texts_is_cohere_s_own_under_the_prefix(self, kinds: RunningServer) -> None:
        body = {"model": "dense", "texts": ["a"] * 97}
        assert kinds.http.post("/cohere/v2/embed", json={**body, "texts": ["a"] * 96}).status_code == 200
        assert kinds.http.post("/v2/embed", json=body).status_code == 200
        answer = kinds.http.post("/cohere/v2/embed", json=body)
        assert (answer.status_code, answer.json()) == (
            400,
            {"message": "`texts` has 97 items; at most 96 fit into one request"},
        )


class TestRerank:
    @pytest.mark.parametrize("model", ["reranker", "dense"])
    @pytest.mark.parametrize("version", ["v1", "v2"])
    def test_scores_are_the_engine_s(self, kinds: RunningServer, version: str, model: str) -> None:
        found = rerank(kinds, version, model=model)
        expected = ask(kinds.engines[model].rerank(QUERY, TEXTS))
        assert [each["index"] for each in found["results"]] == [each.index for each in expected]
        scores = np.asarray([each["relevance_score"] for each in found["results"]])
        assert_close(scores, np.asarray([each.score for each in expected]))
        assert set(found) == {"id", "results", "meta"}
        assert found["meta"] == {"api_version": {"version": version[1]}, "billed_units": {"search_units": 1}}
        assert all(set(each) == {"index", "relevance_score"} for each in found["results"])

    def test_top_n(self, kinds: RunningServer) -> None:
        assert rerank(kinds, top_n=2)["results"] == rerank(kinds)["results"][:2]

    def test_documents_come_back_as_objects_in_version_1(self, kinds: RunningServer) -> None:
        documents = ["the cat", {"text": "a dog", "id": "7", "n": [1]}, "half \ud83d"]
        body = {"model": "reranker", "query": QUERY, "documents": documents, "return_documents": True}
        answer = kinds.http.post("/cohere/v1/rerank", content=json.dumps(body))
        shown = {each["index"]: each["document"] for each in answer.json()["results"]}
        assert shown == {
            0: {"text": "the cat"},
            1: {"text": "a dog", "id": "7"},
            2: {"text": "half \N{REPLACEMENT CHARACTER}"},
        }

    def test_bare_path_has_what_every_client_looks_for(self, kinds: RunningServer) -> None:
        for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
            answer = kinds.http.post(path, json={"model": "reranker", "query": QUERY, "documents": TEXTS}).json()
            assert set(answer) == {"id", "results", "meta", "model", "usage"}
            assert answer["model"] == "reranker"
            assert answer["usage"]["total_tokens"] > 0
            assert all(each["document"] == {"text": TEXTS[each["index"]]} for each in answer["results"])

    def test_bare_path_leaves_documents_out_where_they_are_not_wanted(self, kinds: RunningServer) -> None:
        results = rerank(kinds, "v1", "", return_documents=False)["results"]
        assert all(set(each) == {"index", "relevance_score"} for each in results)

    def test_rank_fields_are_read_in_turn(self, kinds: RunningServer) -> None:
        documents = [{"title": "the cat", "body": "a dog", "n": 3}, {"body": "water"}]
        found = rerank(kinds, "v1", documents=documents, rank_fields=["title", "body"])["results"]
        expected = rerank(kinds, "v1", documents=["the cat\na dog", "water"])["results"]
        assert found == expected

    def test_documents_without_the_fields_are_refused(self, kinds: RunningServer) -> None:
        body = {"model": "reranker", "query": QUERY, "documents": ["a", {"text": "b"}], "rank_fields": ["title"]}
        answer = kinds.http.post("/cohere/v1/rerank", json=body)
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("documents[1] has no string in any of the rank_fields title")

    def test_documents_are_cut_to_the_tokens_asked_for(self, kinds: RunningServer) -> None:
        documents = [LONG_TEXT, "the cat"]
        found = rerank(kinds, documents=documents, max_tokens_per_doc=5)["results"]
        expected = ask(kinds.engines["reranker"].rerank(QUERY, documents, max_tokens_per_doc=5))
        assert_close(np.asarray([each["relevance_score"] for each in found]), np.asarray([e.score for e in expected]))

    def test_empty_documents_have_a_score(self, kinds: RunningServer) -> None:
        for model in ("reranker", "dense"):
            found = rerank(kinds, model=model, documents=["real", "", " "])["results"]
            assert sorted(each["index"] for each in found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("v2/embed", {"texts": None}, 400, "`texts` is required"),
        ("v2/embed", {"texts": []}, 400, "texts"),
        ("v2/embed", {"texts": "the cat"}, 400, "`texts` should be a valid list"),
        ("v2/embed", {"texts": ["a", 3]}, 400, "`texts[1]` should be a valid string"),
        ("v2/embed", {"texts": ["a"], "inputs": []}, 400, "not both"),
        ("v2/embed", {"texts": None, "inputs": [{"content": []}]}, 400, "inputs[0].content"),
        ("v2/embed", {"texts": None, "inputs": [{"content": [{"type": "image_url"}]}]}, 400, "inputs[0].content"),
        ("v2/embed", {"images": ["data:image/png;base64,"]}, 400, "images are not read"),
        ("v2/embed", {"input_type": "image"}, 400, "input_type 'image' is not known here"),
        ("v2/embed", {"output_dimension": 65}, 400, "output_dimension must be a whole number from 1 to 64, not 65"),
        ("v2/embed", {"max_tokens": 0}, 400, "max_tokens"),
        ("v2/embed", {"embedding_types": ["float", "int4"]}, 400, "`embedding_types[1]`"),
        ("v2/embed", {"truncate": "LEFT"}, 400, "`truncate` should be 'NONE', 'START' or 'END'"),
        ("v2/embed", {"model": "nope"}, 404, "'nope' is not served here"),
        ("v2/embed", {"model": "reranker"}, 400, "does not offer the task 'embed'"),
        ("v1/embed", {"texts": None}, 400, "`texts` is required"),
        ("v1/rerank", {"query": None}, 400, "`query`"),
        ("v1/rerank", {"documents": []}, 400, "documents is empty"),
        ("v1/rerank", {"documents": [{"title": "a"}]}, 400, "documents[0]"),
        ("v2/rerank", {"top_n": 0}, 400, "top_n must be an integer of at least 1"),
        ("v2/rerank", {"documents": ["a", 3]}, 400, "`documents[1]`"),
        ("v2/rerank", {"model": "nli"}, 400, "not one relevance score"),
        ("v2/nope", {}, 404, "no route POST /cohere/v2/nope"),
    ],
)
def test_error_body_is_cohere_s_own(
    kinds: RunningServer, path: str, fields: dict[str, Any], status: int, message: str
) -> None:
    body = {"texts": TEXTS} if "embed" in path else {"query": QUERY, "documents": TEXTS}
    answer = kinds.http.post(f"/cohere/{path}", json={"model": "dense", **body, **fields})
    assert answer.status_code == status
    assert list(answer.json()) == ["message"]
    assert message in answer.json()["message"]

"""Jina's dialect: embeddings, multi-vectors, rerank, labels, errors; values equal to the engine's."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import RunningServer, ask
from sentence_transformers import SentenceTransformer

from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water"]
LONG_TEXT = "the cat and a dog on the stone by the river " * 20
LABELS = ["cat", "the river", "a stone and the light"]


def post(kinds: RunningServer, route: str, **fields: Any) -> Any:
    answer = kinds.http.post(f"/jina/v1/{route}", json={"model": "dense", "input": TEXTS, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def vectors(answer: Any) -> Any:
    return np.asarray([item["embedding"] for item in answer["data"]], dtype=np.float32)


class TestEmbeddings:
    def test_shape_is_openai_s(self, kinds: RunningServer) -> None:
        found = post(kinds, "embeddings")
        expected = ask(kinds.engines["dense"].embed(TEXTS))
        assert_close(vectors(found), np.asarray(expected))
        tokens = sum(expected.num_tokens)
        assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert (found["object"], found["model"]) == ("list", "dense")
        assert [set(item) for item in found["data"]] == [{"object", "index", "embedding"}] * 3

    @pytest.mark.parametrize(
        ("task", "fields"),
        [
            ("retrieval.query", {"input_type": "query"}),
            ("retrieval.passage", {"input_type": "document"}),
            ("classification", {"prompt_name": "classification"}),
            ("text-matching", {}),
            ("separation", {}),
        ],
    )
    @pytest.mark.parametrize("field", ["task", "input_type"])
    def test_tasks(self, kinds: RunningServer, field: str, task: str, fields: dict[str, Any]) -> None:
        expected = ask(kinds.engines["dense"].embed(TEXTS, **fields))
        assert_close(vectors(post(kinds, "embeddings", **{field: task})), np.asarray(expected))

    def test_items_may_be_objects(self, kinds: RunningServer) -> None:
        objects = [{"text": text} for text in TEXTS]
        assert post(kinds, "embeddings", input=objects) == post(kinds, "embeddings")

    @pytest.mark.parametrize("field", ["embedding_type", "encoding_type", "encoding_format"])
    def test_one_encoding_by_any_name(self, kinds: RunningServer, field: str) -> None:
        found = post(kinds, "embeddings", **{field: "base64"})
        decoded = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in found["data"]]
        assert np.array_equal(np.stack(decoded), vectors(post(kinds, "embeddings")))

    def test_a_list_of_one_is_one(self, kinds: RunningServer) -> None:
        assert post(kinds, "embeddings", embedding_type=["int8"]) == post(kinds, "embeddings", embedding_type="int8")

    def test_several_encodings_at_once(self, kinds: RunningServer) -> None:
        both = post(kinds, "embeddings", embedding_type=["float", "ubinary"])
        for name in ("float", "ubinary"):
            alone = post(kinds, "embeddings", embedding_type=name)
            assert [item["embedding"][name] for item in both["data"]] == [item["embedding"] for item in alone["data"]]

    def test_normalized_off(self, kinds: RunningServer) -> None:
        expected = ask(kinds.engines["dense"].embed(TEXTS, normalize=False))
        assert_close(vectors(post(kinds, "embeddings", normalized=False)), np.asarray(expected), "raw")

    def test_raw_vectors_do_not_fit_into_integers(self, kinds: RunningServer) -> None:
        body = {"model": "dense", "input": TEXTS, "normalized": False, "embedding_type": "int8"}
        answer = kinds.http.post("/jina/v1/embeddings", json=body)
        assert answer.status_code == 422
        assert "embedding_type int8 holds values up to 1" in answer.json()["detail"]


class TestLateChunking:
    @pytest.mark.parametrize("fields", [{}, {"task": "retrieval.passage"}, {"dimensions": 16}, {"normalized": False}])
    def test_one_vector_for_each_input_in_one_context(self, kinds: RunningServer, fields: dict[str, Any]) -> None:
        found = post(kinds, "embeddings", late_chunking=True, **fields)
        names = {"task": "input_type", "normalized": "normalize"}
        engine_fields = {names.get(k, k): {"retrieval.passage": "document"}.get(str(v), v) for k, v in fields.items()}
        (expected,) = ask(kinds.engines["dense"].embed_chunks([TEXTS], **engine_fields))
        assert_close(vectors(found), expected.vectors, "raw")
        assert not np.allclose(vectors(found), vectors(post(kinds, "embeddings", **fields)), atol=1e-2)

    def test_off_is_as_without(self, kinds: RunningServer) -> None:
        assert post(kinds, "embeddings", late_chunking=False) == post(kinds, "embeddings")

    def test_one_string_is_one_piece(self, kinds: RunningServer) -> None:
        found = post(kinds, "embeddings", late_chunking=True, input="the cat")
        (expected,) = ask(kinds.engines["dense"].embed_chunks([["the cat"]]))
        assert_close(vectors(found), expected.vectors)

    def test_texts_over_the_limit_are_read_in_several_contexts(self, kinds: RunningServer) -> None:
        pieces = ["the cat and a dog on the stone"] * 20
        found = post(kinds, "embeddings", late_chunking=True, input=pieces)
        (expected,) = ask(kinds.engines["dense"].embed_chunks([pieces]))
        assert_close(vectors(found), expected.vectors)
        assert max(expected.contexts) > 0

    @pytest.mark.parametrize(
        ("texts", "fields", "message"),
        [
            (["the cat"] * 60, {"truncate": False}, "input has "),
            (["the cat", ""], {}, "input has a chunk without tokens, number 1"),
            (["the cat", 3], {}, "input[1] "),
            ([], {}, "input is empty"),
            ([5, 6, 7], {}, "input[0] "),
            (["the cat", LONG_TEXT], {}, "input has a chunk of"),
        ],
    )
    def test_errors_name_the_item(
        self, kinds: RunningServer, texts: object, fields: dict[str, Any], message: str
    ) -> None:
        body = {"model": "dense", "input": texts, "late_chunking": True, **fields}
        answer = kinds.http.post("/jina/v1/embeddings", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(message)


class TestMultiVector:
    @pytest.mark.parametrize("fields", [{}, {"input_type": "query"}, {"input_type": "document"}])
    def test_values_are_the_engine_s(self, kinds: RunningServer, fields: dict[str, Any]) -> None:
        found = post(kinds, "multi-vector", model="m3", **fields)
        expected = ask(kinds.engines["m3"].encode(TEXTS, ["multi_vector"], **fields))
        for index, (item, rows) in enumerate(zip(found["data"], expected.multi_vector, strict=True)):
            assert (item["object"], item["index"]) == ("embeddings", index)
            assert_close(np.asarray(item["embeddings"]), rows)
        assert found["usage"]["total_tokens"] == expected.usage.total_tokens

    def test_cut_and_encoded(self, kinds: RunningServer) -> None:
        found = post(kinds, "multi-vector", model="m3", dimensions=16, embedding_type=["float", "ubinary", "base64"])
        for item in found["data"]:
            each = item["embeddings"]
            floats = np.asarray(each["float"], dtype=np.float32)
            assert floats.shape[1] == 16
            assert np.array_equal(np.asarray(each["ubinary"]), np.packbits(floats >= 0, axis=1))
            decoded = [np.frombuffer(base64.b64decode(row), "<f4") for row in each["base64"]]
            assert np.array_equal(np.stack(decoded), floats)

    def test_model_without_is_refused(self, kinds: RunningServer) -> None:
        answer = kinds.http.post("/jina/v1/multi-vector", json={"model": "dense", "input": TEXTS})
        assert answer.status_code == 422
        assert "token_embed" in answer.json()["detail"]


class TestRerank:
    def test_documents_come_back_as_objects_unless_not_wanted(self, kinds: RunningServer) -> None:
        body = {"model": "reranker", "query": "the river", "documents": TEXTS, "top_n": 2}
        found = kinds.http.post("/jina/v1/rerank", json=body).json()
        expected = ask(kinds.engines["reranker"].rerank("the river", TEXTS, 2))
        assert [each["index"] for each in found["results"]] == [each.index for each in expected]
        assert [each["document"]["text"] for each in found["results"]] == [each.document for each in expected]
        scores = np.asarray([each["relevance_score"] for each in found["results"]])
        assert_close(scores, np.asarray([each.score for each in expected]))
        assert set(found) == {"model", "usage", "results"}
        assert found["usage"] == {"total_tokens": expected.usage.total_tokens}
        without = kinds.http.post("/jina/v1/rerank", json={**body, "return_documents": False}).json()
        assert all(set(each) == {"index", "relevance_score"} for each in without["results"])


class TestClassify:
    def test_labels_of_the_checkpoint(self, kinds: RunningServer) -> None:
        found = post(kinds, "classify", model="nli")
        expected = ask(kinds.engines["nli"].classify(TEXTS))
        for item, each in zip(found["data"], expected, strict=True):
            assert (item["object"], item["prediction"]) == ("classification", each.label)
            assert {one["label"]: one["score"] for one in item["predictions"]} == pytest.approx(each.scores, abs=1e-5)
            assert item["score"] == max(one["score"] for one in item["predictions"])
        assert found["usage"]["total_tokens"] == expected.usage.total_tokens

    def test_labels_of_the_caller_by_entailment(self, kinds: RunningServer) -> None:
        found = post(kinds, "classify", model="nli", labels=LABELS)
        expected = ask(kinds.engines["nli"].zero_shot(TEXTS, LABELS))
        for item, each in zip(found["data"], expected, strict=True):
            assert {one["label"]: one["score"] for one in item["predictions"]} == pytest.approx(each.scores, abs=1e-5)

    def test_labels_of_the_caller_by_cosine(self, kinds: RunningServer, kind_folders: dict[str, Path]) -> None:
        found = post(kinds, "classify", labels=LABELS)
        reference = SentenceTransformer(str(kind_folders["dense"]), device="cpu")
        texts, labels = (reference.encode(each, prompt_name="classification") for each in (TEXTS, LABELS))
        scores = [[one["score"] for one in item["predictions"]] for item in found["data"]]
        assert_close(np.asarray(scores), texts @ labels.T)
        assert [item["prediction"] for item in found["data"]] == [LABELS[i] for i in (texts @ labels.T).argmax(axis=1)]
        assert found["usage"]["total_tokens"] > 0

    @pytest.mark.parametrize("labels", [[], ["a", "a"], "cat", [3]])
    @pytest.mark.parametrize("model", ["dense", "nli"])
    def test_wrong_labels_are_refused(self, kinds: RunningServer, model: str, labels: object) -> None:
        body = {"model": model, "input": TEXTS, "labels": labels}
        answer = kinds.http.post("/jina/v1/classify", json=body)
        assert answer.status_code == 422
        assert "label" in answer.json()["detail"]

    def test_model_without_labels_needs_them(self, kinds: RunningServer) -> None:
        answer = kinds.http.post("/jina/v1/classify", json={"model": "dense", "input": TEXTS})
        assert (answer.status_code, list(answer.json())) == (422, ["detail"])

    def test_half_a_character_in_a_label(self, kinds: RunningServer) -> None:
        body = json.dumps({"model": "dense", "input": "a", "labels": ["\ud83d", "cat"]})
        answer = kinds.http.post("/jina/v1/classify", content=body).json()
        assert [one["label"] for one in answer["data"][0]["predictions"]] == ["\N{REPLACEMENT CHARACTER}", "cat"]


@pytest.mark.parametrize(
    ("route", "fields", "status", "message"),
    [
        ("embeddings", {"input": None}, 422, "input"),
        ("embeddings", {"input": []}, 422, "input is empty"),
        ("embeddings", {"input": [{"image": "x"}]}, 422, "input[0] must be a string or an object"),
        ("embeddings", {"input": ["a", {"text": "b", "image": "x"}]}, 422, "input[1] must be"),
        ("embeddings", {"input": [LONG_TEXT], "truncate": False}, 422, "input[0]"),
        ("embeddings", {"task": "nope"}, 422, "task 'nope' is not known here"),
        ("embeddings", {"dimensions": 0}, 422, "dimensions must be"),
        ("multi-vector", {"dimensions": 0, "model": "m3"}, 422, "dimensions must be"),
        ("embeddings", {"embedding_type": "int4"}, 422, "`embedding_type`"),
        ("embeddings", {"embedding_type": ["float", "int4"]}, 422, "`embedding_type`"),
        ("embeddings", {"model": "nope"}, 400, "INPUT_MODEL_NOT_FOUND: the model 'nope' is not served here"),
        ("embeddings", {"model": "reranker"}, 422, "does not offer the task 'embed'"),
        ("classify", {"input": [], "labels": LABELS}, 422, "input"),
        ("classify", {"input": [[1, 2]], "labels": LABELS}, 422, "input[0]"),
        ("classify", {"input": 24, "labels": LABELS, "model": "nli"}, 422, "input must be a string or a list"),
        ("classify", {"input": [1, 2], "labels": LABELS, "model": "nli"}, 422, "input"),
        ("rerank", {"query": "a", "documents": []}, 422, "documents is empty"),
        ("rerank", {"query": "a", "documents": [LONG_TEXT], "truncate": False}, 422, "documents[0]"),
        ("nope", {}, 404, "no route POST /jina/v1/nope"),
    ],
)
def test_error_body_is_jina_s_own(
    kinds: RunningServer, route: str, fields: dict[str, Any], status: int, message: str
) -> None:
    answer = kinds.http.post(f"/jina/v1/{route}", json={"model": "dense", "input": TEXTS, **fields})
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["detail"]
    assert message in answer.json()["detail"]
    assert "multi_vector" not in answer.json()["detail"]

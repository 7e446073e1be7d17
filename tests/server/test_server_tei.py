"""TEI's dialect: bodies, answers, statuses and errors. Reference: transformers and sentence-transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from running import RunningServer, run_server
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from cenote import __version__
from cenote.engine import AsyncEngine
from cenote.errors import BusyError, DeviceMemoryError, EngineClosedError, OversizeError
from cenote.server.dialects.tei import TEI
from cenote.server.endpoint import choose
from cenote.server.failures import failure_of
from cenote.server.paths import bare_paths
from tiny import add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

PAGE = (Path(__file__).parents[2] / "docs" / "api" / "tei.md").read_text(encoding="utf-8")
TEXTS = ["the cat", "a dog and a bird", "water on the stone"]
LONG_TEXT = "the cat and a dog on the stone " * 30 + "water bird"
LABELS = ["contradiction", "neutral", "entailment"]


@pytest.fixture(scope="module")
def reference(kind_folders: dict[str, Path]) -> SentenceTransformer:
    return SentenceTransformer(str(kind_folders["dense"]), device="cpu")


@pytest.fixture(scope="module")
def alone(kind_folders: dict[str, Path]) -> Iterator[RunningServer]:
    """A server of one embedder and one reranker, as TEI's clients ask: without any name."""
    engines = {name: AsyncEngine(kind_folders[name], threads=1) for name in ("dense", "reranker")}
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()


def ask(server: RunningServer, path: str, **body: Any) -> Any:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("prefix", ["", "/tei"])
class TestEmbed:
    def test_is_a_bare_list_of_unit_vectors(
        self, kinds: RunningServer, reference: SentenceTransformer, prefix: str
    ) -> None:
        found = ask(kinds, f"{prefix}/embed", model="dense", inputs=TEXTS)
        assert_close(np.array(found), reference.encode(TEXTS))
        assert_close(
            np.array(ask(kinds, f"{prefix}/embed", model="dense", inputs=TEXTS[0])), reference.encode(TEXTS[:1])
        )

    def test_raw_and_cut_vectors(self, kinds: RunningServer, reference: SentenceTransformer, prefix: str) -> None:
        raw = reference.encode(TEXTS, normalize_embeddings=False, output_value="token_embeddings")
        means = np.stack([rows.numpy().mean(axis=0) for rows in raw])
        found = ask(kinds, f"{prefix}/embed", model="dense", inputs=TEXTS, normalize=False)
        assert_close(np.array(found), means, "raw")
        found = ask(kinds, f"{prefix}/embed", model="dense", inputs=TEXTS, dimensions=16)
        assert_close(np.array(found), means[:, :16] / np.linalg.norm(means[:, :16], axis=1, keepdims=True))

    def test_a_prompt_by_its_name(self, kinds: RunningServer, reference: SentenceTransformer, prefix: str) -> None:
        found = ask(kinds, f"{prefix}/embed", model="dense", inputs=TEXTS, prompt_name="query")
        assert_close(np.array(found), reference.encode(TEXTS, prompt_name="query"))

    def test_token_ids(self, kinds: RunningServer, reference: SentenceTransformer, prefix: str) -> None:
        ids = [reference.tokenizer(text)["input_ids"] for text in TEXTS]
        assert_close(np.array(ask(kinds, f"{prefix}/embed", model="dense", inputs=ids)), reference.encode(TEXTS))
        one = ask(kinds, f"{prefix}/embed", model="dense", inputs=ids[0])
        assert_close(np.array(one), reference.encode(TEXTS[:1]))

    @pytest.mark.parametrize("direction", ["Left", "left", "LEFT", "Right", "right", None])
    def test_the_end_that_is_cut(
        self, kinds: RunningServer, reference: SentenceTransformer, prefix: str, direction: str | None
    ) -> None:
        ids = reference.tokenizer(LONG_TEXT, add_special_tokens=False)["input_ids"]
        kept = ids[-62:] if str(direction).lower() == "left" else ids[:62]
        cls, sep = reference.tokenizer("")["input_ids"]
        found = ask(kinds, f"{prefix}/embed", model="dense", inputs=LONG_TEXT, truncation_direction=direction)
        expected = ask(kinds, f"{prefix}/embed", model="dense", inputs=[[cls, *kept, sep]])
        assert_close(np.array(found), np.array(expected))

    def test_every_token(self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str) -> None:
        found = ask(kinds, f"{prefix}/embed_all", model="dense", inputs=TEXTS)
        tokenizer = AutoTokenizer.from_pretrained(kind_folders["dense"])
        model = AutoModel.from_pretrained(kind_folders["dense"]).eval()
        for text, rows in zip(TEXTS, found, strict=True):
            with torch.inference_mode():
                expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            assert_close(np.array(rows), expected, "raw")

    def test_every_token_of_what_is_kept(self, kinds: RunningServer, prefix: str) -> None:
        left = ask(kinds, f"{prefix}/embed_all", model="dense", inputs=LONG_TEXT, truncation_direction="Left")[0]
        right = ask(kinds, f"{prefix}/embed_all", model="dense", inputs=LONG_TEXT)[0]
        assert len(left) == len(right) == 64
        assert np.abs(np.array(left) - np.array(right)).max() > 1e-3

    def test_sparse(self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str) -> None:
        found = ask(kinds, f"{prefix}/embed_sparse", model="m3", inputs=TEXTS)
        tokenizer = AutoTokenizer.from_pretrained(kind_folders["m3"])
        model = AutoModel.from_pretrained(kind_folders["m3"]).eval()
        state = torch.load(kind_folders["m3"] / "sparse_linear.pt", weights_only=True)
        for text, terms in zip(TEXTS, found, strict=True):
            encoded = tokenizer(text, return_tensors="pt")
            with torch.inference_mode():
                hidden = model(**encoded).last_hidden_state[0]
                weights = torch.relu(hidden @ state["weight"].T + state["bias"])[:, 0].tolist()
            expected: dict[int, float] = {}
            for token, weight in list(zip(encoded["input_ids"][0].tolist(), weights, strict=True))[1:-1]:
                expected[token] = max(expected.get(token, 0.0), weight)
            expected = {token: weight for token, weight in expected.items() if weight > 0}
            assert {term["index"] for term in terms} == set(expected)
            assert_close([term["value"] for term in terms], np.array([expected[t["index"]] for t in terms]), "raw")

    def test_similarity(self, kinds: RunningServer, reference: SentenceTransformer, prefix: str) -> None:
        inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
        vectors = reference.encode(TEXTS)
        assert_close(ask(kinds, f"{prefix}/similarity", model="dense", inputs=inputs), vectors[1:] @ vectors[0])
        body = {"model": "dense", "inputs": inputs, "parameters": {"prompt_name": "query"}}
        vectors = reference.encode(TEXTS, prompt_name="query")
        assert_close(ask(kinds, f"{prefix}/similarity", **body), vectors[1:] @ vectors[0])


def test_vectors_are_normalised_even_where_the_checkpoint_does_not(tmp_path: Path) -> None:
    folder = add_sentence_transformers_files(tiny_checkpoint("bert", tmp_path))
    raw = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    engine = AsyncEngine(folder, threads=1)
    with run_server({"raw": engine}) as server:
        assert_close(np.array(ask(server, "/tei/embed", inputs=TEXTS)), unit)
        assert_close(np.array(ask(server, "/tei/embed", inputs=TEXTS, normalize=False)), raw, "raw")
        data = ask(server, "/tei/v1/embeddings", input=TEXTS)["data"]
        assert_close(np.array([item["embedding"] for item in data]), unit)
    engine.close()


@pytest.mark.parametrize("prefix", ["", "/tei"])
class TestPredict:
    @pytest.mark.parametrize("raw", [None, False, True])
    def test_texts_pairs_and_batches(
        self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str, raw: bool | None
    ) -> None:
        tokenizer = AutoTokenizer.from_pretrained(kind_folders["nli"])
        model = AutoModelForSequenceClassification.from_pretrained(kind_folders["nli"]).eval()

        def expected(*texts: str) -> list[tuple[str, float]]:
            with torch.inference_mode():
                logits = model(**tokenizer(*texts, return_tensors="pt")).logits[0]
            scores = (logits if raw else logits.softmax(-1)).tolist()
            return sorted(zip(LABELS, scores, strict=True), key=lambda pair: -pair[1])

        def check(found: list[dict[str, Any]], *texts: str) -> None:
            wanted = expected(*texts)
            assert [each["label"] for each in found] == [label for label, _ in wanted]
            assert_close([each["score"] for each in found], np.array([score for _, score in wanted]), "raw")

        def predict(inputs: object) -> Any:
            return ask(kinds, f"{prefix}/predict", model="nli", inputs=inputs, raw_scores=raw)

        check(predict("the cat"), "the cat")
        check(predict(["the cat"]), "the cat")
        check(predict(["the cat", "a dog"]), "the cat", "a dog")
        for batch in (
            [["the cat"], ["a dog"]],
            [["the cat", "a dog"], ["water", "a bird"]],
            [["the cat"], ["water", "a bird"]],
        ):
            found = predict(batch)
            assert len(found) == 2
            for each, texts in zip(found, batch, strict=True):
                check(each, *texts)

    def test_of_a_reranker_there_is_one_label(
        self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str
    ) -> None:
        expected = CrossEncoder(str(kind_folders["reranker"]), device="cpu").predict([("the cat", "a dog")])
        found = ask(kinds, f"{prefix}/predict", model="reranker", inputs=["the cat", "a dog"])
        assert [each["label"] for each in found] == ["LABEL_0"]
        assert_close([found[0]["score"]], expected)


@pytest.mark.parametrize("prefix", ["", "/tei"])
class TestRerank:
    @pytest.mark.parametrize("raw", [False, True])
    def test_is_a_bare_sorted_list(
        self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str, raw: bool
    ) -> None:
        reranker = CrossEncoder(str(kind_folders["reranker"]), device="cpu")
        activation = torch.nn.Identity() if raw else torch.nn.Sigmoid()
        scores = reranker.predict([("water", text) for text in TEXTS], activation_fn=activation)
        found = ask(kinds, f"{prefix}/rerank", model="reranker", query="water", texts=TEXTS, raw_scores=raw)
        order = np.argsort(-scores).tolist()
        assert [each["index"] for each in found] == order
        assert_close([each["score"] for each in found], scores[order], "raw")
        assert all(set(each) == {"index", "score"} for each in found)

    def test_texts_come_back_where_asked_for(self, kinds: RunningServer, prefix: str) -> None:
        found = ask(kinds, f"{prefix}/rerank", model="reranker", query="water", texts=TEXTS, return_text=True)
        assert all(each["text"] == TEXTS[each["index"]] for each in found)

    def test_the_end_that_is_cut(self, kinds: RunningServer, prefix: str) -> None:
        body = {"model": "reranker", "query": "water", "texts": [LONG_TEXT]}
        left = ask(kinds, f"{prefix}/rerank", **body, truncation_direction="Left", raw_scores=True)
        right = ask(kinds, f"{prefix}/rerank", **body, raw_scores=True)
        ids = ask(kinds, f"{prefix}/tokenize", model="reranker", inputs=LONG_TEXT, add_special_tokens=False)[0]
        words = " ".join(token["text"] for token in ids[-60:])
        same = ask(kinds, f"{prefix}/rerank", model="reranker", query="water", texts=[words], raw_scores=True)
        assert_close([left[0]["score"]], np.array([same[0]["score"]]), "raw")
        assert abs(left[0]["score"] - right[0]["score"]) > 1e-3


@pytest.mark.parametrize("prefix", ["", "/tei"])
class TestTokens:
    @pytest.mark.parametrize("special", [None, True, False])
    def test_taken_apart(
        self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str, special: bool | None
    ) -> None:
        texts = ["the cat", "Water, half \ud83d é!", ""]
        answer = kinds.http.post(
            f"{prefix}/tokenize",
            content=json.dumps({"model": "dense", "inputs": texts, "add_special_tokens": special}),
            headers={"content-type": "application/json"},
        )
        backend = AutoTokenizer.from_pretrained(kind_folders["dense"]).backend_tokenizer
        for text, tokens in zip(texts, answer.json(), strict=True):
            repaired = text.replace("\ud83d", "\ufffd")
            expected = backend.encode(repaired, add_special_tokens=special is not False)
            assert [token["id"] for token in tokens] == expected.ids
            for token, string, mask, (start, stop) in zip(
                tokens, expected.tokens, expected.special_tokens_mask, expected.offsets, strict=True
            ):
                assert token["special"] == (mask == 1)
                assert (token["start"], token["stop"]) == ((None, None) if mask else (start, stop))
                assert token["text"] == (string if mask else repaired[start:stop])

    def test_one_text_is_a_list_of_one(self, kinds: RunningServer, prefix: str) -> None:
        assert len(ask(kinds, f"{prefix}/tokenize", model="dense", inputs="the cat")) == 1

    def test_put_together(self, kinds: RunningServer, kind_folders: dict[str, Path], prefix: str) -> None:
        tokenizer = AutoTokenizer.from_pretrained(kind_folders["dense"])
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        assert ask(kinds, f"{prefix}/decode", model="dense", ids=ids) == TEXTS
        assert ask(kinds, f"{prefix}/decode", model="dense", ids=ids[0]) == TEXTS[:1]
        whole = ask(kinds, f"{prefix}/decode", model="dense", ids=ids, skip_special_tokens=False)
        assert whole == [tokenizer.decode(each) for each in ids]

    def test_no_more_than_a_million_characters(self, kinds: RunningServer, prefix: str) -> None:
        answer = kinds.http.post(f"{prefix}/tokenize", json={"model": "dense", "inputs": ["a " * 250_000] * 3})
        assert answer.status_code == 413


class TestOpenAIsRoute:
    @pytest.mark.parametrize("path", ["/tei/v1/embeddings", "/tei/embeddings"])
    def test_an_unknown_name_means_the_only_model(
        self, alone: RunningServer, reference: SentenceTransformer, path: str
    ) -> None:
        for model in ("text-embeddings-inference", "dense", None):
            answer = ask(alone, path, input=TEXTS, model=model)
            assert_close(np.array([item["embedding"] for item in answer["data"]]), reference.encode(TEXTS))
            assert answer["model"] == "dense"

    @pytest.mark.parametrize("path", ["/tei/v1/embeddings", "/tei/embeddings"])
    def test_errors_are_flat(self, alone: RunningServer, path: str) -> None:
        answer = alone.http.post(path, json={"input": TEXTS, "dimensions": 0})
        assert answer.status_code == 422
        assert answer.json().keys() == {"message", "code", "type"}
        assert (answer.json()["code"], answer.json()["type"]) == (422, "Validation")
        empty = alone.http.post(path, json={"input": []})
        assert (empty.status_code, empty.json()["type"]) == (400, "Empty")

    def test_bare_it_is_openai_s(self, kinds: RunningServer) -> None:
        answer = ask(kinds, "/embeddings", model="dense", input=TEXTS)
        assert answer == ask(kinds, "/v1/embeddings", model="dense", input=TEXTS)


class TestWithoutAName:
    def test_the_only_model_that_can_is_meant(self, alone: RunningServer) -> None:
        assert ask(alone, "/tei/embed", inputs="a") == ask(alone, "/tei/embed", inputs="a", model="dense")
        body = {"query": "water", "texts": TEXTS}
        assert ask(alone, "/tei/rerank", **body) == ask(alone, "/tei/rerank", **body, model="reranker")
        predicted = ask(alone, "/tei/predict", inputs="a")
        assert predicted == ask(alone, "/tei/predict", inputs="a", model="reranker")

    def test_rerankers_and_classifiers_are_told_apart(self, kinds: RunningServer) -> None:
        body = {"query": "water", "texts": TEXTS}
        assert ask(kinds, "/rerank", **body) == ask(kinds, "/tei/rerank", **body, model="reranker")
        assert ask(kinds, "/tei/predict", inputs="a") == ask(kinds, "/tei/predict", inputs="a", model="nli")

    def test_where_several_can_one_must_be_named(self, kinds: RunningServer) -> None:
        answer = kinds.http.post("/tei/embed", json={"inputs": "a"})
        assert (answer.status_code, answer.json()["error_type"]) == (422, "Validation")
        assert "dense, reranker, nli, m3" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/tei", "/tei/"])
def test_the_address_alone_embeds(alone: RunningServer, path: str) -> None:
    assert ask(alone, path, inputs=TEXTS) == ask(alone, "/tei/embed", inputs=TEXTS)
    assert alone.http.get(path).status_code == 200
    refused = alone.http.post(path, json={"inputs": "a", "dimensions": "x"})
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


class TestInfo:
    def test_of_an_embedder(self, kinds: RunningServer) -> None:
        found = kinds.http.get("/tei/info").json()
        assert found["served_model_name"] == "dense"
        assert found["model_type"] == {"embedding": {"pooling": "mean"}}
        assert (found["max_input_length"], found["model_dtype"], found["auto_truncate"]) == (64, "float32", True)
        assert (found["version"], found["max_client_batch_size"]) == (__version__, 2048)
        assert found["max_batch_tokens"] > 0

    def test_of_others(self, kinds: RunningServer) -> None:
        nli = kinds.http.get("/info/nli").json()["model_type"]["classifier"]
        assert nli["id2label"] == {str(i): name for i, name in enumerate(LABELS)}
        assert nli["label2id"] == {name: i for i, name in enumerate(LABELS)}
        assert "reranker" in kinds.http.get("/tei/info/reranker").json()["model_type"]
        unknown = kinds.http.get("/tei/info/nope")
        assert (unknown.status_code, unknown.json()["error_type"]) == (404, "Validation")

    @pytest.mark.parametrize("path", ["/tei/health", "/tei/ping", "/tei/"])
    def test_health_is_empty(self, kinds: RunningServer, path: str) -> None:
        answer = kinds.http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")


EMPTY = [
    ("/embed", {"inputs": []}),
    ("/embed", {"inputs": [[]]}),
    ("/embed_all", {"inputs": []}),
    ("/embed_sparse", {"inputs": [], "model": "m3"}),
    ("/predict", {"inputs": [], "model": "nli"}),
    ("/rerank", {"query": "a", "texts": [], "model": "reranker"}),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}),
    ("/tokenize", {"inputs": []}),
    ("/decode", {"ids": []}),
]
WRONG = [
    ("/embed", {}, "inputs"),
    ("/embed", {"inputs": None}, "inputs"),
    ("/embed", {"inputs": 3}, "inputs"),
    ("/embed", {"inputs": ["a", 3]}, "inputs[1]"),
    ("/embed", {"inputs": ["a", [5]]}, "inputs[1]"),
    ("/embed", {"inputs": [[5], [999]]}, "inputs[1]"),
    ("/embed", {"inputs": "a", "normalize": "yes"}, "normalize"),
    ("/embed", {"inputs": "a", "dimensions": 0}, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 65}, "dimensions"),
    ("/embed", {"inputs": "a", "truncation_direction": "up"}, "truncation_direction"),
    ("/embed", {"inputs": "a", "truncation_direction": 1}, "truncation_direction"),
    ("/embed", {"inputs": "a", "prompt_name": "nope"}, "prompt_name"),
    ("/embed", {"inputs": ["a", LONG_TEXT], "truncate": False}, "inputs[1]"),
    ("/embed", {"inputs": ["a"] * 2049}, "2048"),
    ("/embed_all", {"inputs": ["a", LONG_TEXT], "truncate": False}, "inputs[1]"),
    ("/embed_all", {"inputs": ["a"] * 2049}, "2048"),
    ("/embed_sparse", {"inputs": ["a", LONG_TEXT], "truncate": False, "model": "m3"}, "inputs[1]"),
    ("/predict", {"inputs": 3, "model": "nli"}, "inputs"),
    ("/predict", {"inputs": ["a", "b", "c"], "model": "nli"}, "inputs"),
    ("/predict", {"inputs": [["a"], ["a", "b", "c"]], "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], "b"], "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], []], "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], [1]], "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], [LONG_TEXT]], "truncate": False, "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"], ["a", LONG_TEXT]], "truncate": False, "model": "nli"}, "inputs[1]"),
    ("/predict", {"inputs": [["a"]] * 2049, "model": "nli"}, "2048"),
    ("/rerank", {"query": "a", "model": "reranker"}, "texts"),
    ("/rerank", {"texts": ["a"], "model": "reranker"}, "query"),
    ("/rerank", {"query": "a", "texts": ["a", 1], "model": "reranker"}, "texts[1]"),
    ("/rerank", {"query": "a", "texts": "a", "model": "reranker"}, "texts"),
    ("/rerank", {"query": "a", "texts": ["a"] * 2049, "model": "reranker"}, "`texts`"),
    ("/rerank", {"query": "a", "texts": ["a", LONG_TEXT], "truncate": False, "model": "reranker"}, "texts[1]"),
    ("/similarity", {"inputs": "a"}, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a"}}, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": "b"}}, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": [1]}}, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": []}, "parameters"),
    ("/tokenize", {"inputs": [[5]]}, "inputs"),
    ("/tokenize", {"inputs": ["a", 1]}, "inputs[1]"),
    ("/decode", {"ids": "a"}, "ids"),
    ("/decode", {"ids": ["a"]}, "ids"),
    ("/decode", {"ids": [[5], [999]]}, "ids[1]"),
]
UNSUPPORTED = [
    ("/embed", {"inputs": "a", "model": "nli"}),
    ("/embed_all", {"inputs": "a", "model": "nli"}),
    ("/embed_sparse", {"inputs": "a", "model": "dense"}),
    ("/predict", {"inputs": "a", "model": "dense"}),
    ("/rerank", {"query": "a", "texts": ["a"], "model": "nli"}),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "model": "nli"}),
]


def refused(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = server.http.post(f"/tei{path}", json={"model": "dense", **body})
    found: dict[str, Any] = answer.json()
    assert set(found) == {"error", "error_type"}
    return answer.status_code, found


class TestErrors:
    @pytest.mark.parametrize(("path", "body"), EMPTY)
    def test_nothing_at_all(self, kinds: RunningServer, path: str, body: dict[str, Any]) -> None:
        status, found = refused(kinds, path, body)
        assert (status, found["error_type"]) == (400, "Empty")

    @pytest.mark.parametrize(("path", "body", "named"), WRONG)
    def test_what_is_wrong_is_named(self, kinds: RunningServer, path: str, body: dict[str, Any], named: str) -> None:
        status, found = refused(kinds, path, body)
        assert (status, found["error_type"]) == (422, "Validation")
        assert named in found["error"]

    @pytest.mark.parametrize(("path", "body"), UNSUPPORTED)
    def test_what_a_model_does_not_offer(self, kinds: RunningServer, path: str, body: dict[str, Any]) -> None:
        status, found = refused(kinds, path, body)
        assert (status, found["error_type"]) == (424, "Backend")

    def test_an_unknown_model(self, kinds: RunningServer) -> None:
        status, found = refused(kinds, "/embed", {"inputs": "a", "model": "nope"})
        assert (status, found["error_type"]) == (404, "Validation")

    def test_a_body_that_cannot_be_read(self, kinds: RunningServer) -> None:
        for content, kind, status in (
            ("{", "application/json", 422),
            ("[]", "application/json", 422),
            ("", "application/json", 422),
            ("{}", "text/plain", 415),
            (" " * (33 * 2**20), "application/json", 413),
        ):
            answer = kinds.http.post("/tei/embed", content=content, headers={"content-type": kind})
            assert (answer.status_code, answer.json()["error_type"]) == (status, "Validation")

    @pytest.mark.parametrize(
        ("error", "status", "kind"),
        [
            (BusyError("full"), 429, "Overloaded"),
            (DeviceMemoryError("full"), 424, "Backend"),
            (EngineClosedError("closed"), 503, "Unhealthy"),
            (OversizeError("too large"), 413, "Validation"),
            (RuntimeError("a bug"), 424, "Backend"),
        ],
    )
    def test_what_is_not_the_client_s_fault(self, error: Exception, status: int, kind: str) -> None:
        answer = TEI.refusal(failure_of(error), exact=True)
        body = json.loads(bytes(answer.body))
        assert (answer.status_code, body["error_type"]) == (status, kind)
        assert ("retry-after" in answer.headers) == (status in (429, 503))

    def test_a_dead_model_is_unhealthy(self, kind_folders: dict[str, Path]) -> None:
        engine = AsyncEngine(kind_folders["dense"], threads=1)
        with run_server({"dense": engine}) as server:
            engine.close()
            for path in ("/tei/health", "/tei/ping", "/tei/"):
                answer = server.http.get(path)
                assert (answer.status_code, answer.json()["error_type"]) == (503, "Unhealthy")

    def test_bare_they_are_for_all_clients(self, kinds: RunningServer) -> None:
        answer = kinds.http.post("/embed", json={"model": "dense", "inputs": []})
        assert answer.status_code == 400
        assert set(answer.json()) == {"error", "message", "detail", "error_type"}
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "body", "dialect"),
    [
        ("/rerank", {"query": "a", "texts": ["b"], "truncate": True, "raw_scores": False}, "tei"),
        ("/rerank", {"query": "a", "texts": ["b"], "top_n": 2, "truncation_direction": "Left"}, "tei"),
        ("/rerank", {"query": "a", "documents": ["b"], "texts": None}, "cohere"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_k": 1}, "voyage"),
        ("/tokenize", {"inputs": "a"}, "tei"),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, "vllm"),
        ("/tokenize", {"messages": []}, "vllm"),
    ],
)
def test_the_body_decides(path: str, body: dict[str, Any], dialect: str) -> None:
    from cenote.server.dialects import DIALECTS

    assert choose(bare_paths(DIALECTS)["POST", path], body).dialect.name == dialect


def test_null_and_unknown_fields_change_nothing(kinds: RunningServer) -> None:
    plain = ask(kinds, "/tei/embed", model="dense", inputs=TEXTS)
    nulls = dict.fromkeys(("truncate", "truncation_direction", "prompt_name", "normalize", "dimensions"))
    assert ask(kinds, "/tei/embed", model="dense", inputs=TEXTS, **nulls, metadata={"a": 1}) == plain


def test_example_of_the_page(alone: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example.replace("http://127.0.0.1:8000", alone.url), "tei.md", "exec"), {})
    assert re.fullmatch(r"2 64\n\[\d, \d\]\n", capsys.readouterr().out)


def test_error_of_the_page(kinds: RunningServer) -> None:
    (printed,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    answer: httpx.Response = kinds.http.post("/tei/embed", json={"model": "dense", "inputs": "a", "dimensions": "16"})
    assert answer.json() == json.loads(printed)

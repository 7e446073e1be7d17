"""vLLM's dialect: /classify and /pooling. Reference: transformers on the same folders."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from running import RunningServer, run_server
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from cenote.engine import AsyncEngine
from cenote.runtime.loop import Loop
from tiny import HIDDEN_SIZE, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close
from vllm_checkpoints import STEP_TAG_ID, reward_model

PAGE = (Path(__file__).parents[2] / "docs" / "api" / "vllm.md").read_text(encoding="utf-8")
TEXTS = ["the cat", "a dog and a bird", "water on the stone"]
LONG_TEXT = "the cat and a dog " * 60
LABELS = {0: "bad", 1: "fair", 2: "good"}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vllm")
    labels = {"id2label": LABELS, "label2id": {name: i for i, name in LABELS.items()}}
    classifier = tiny_checkpoint("bert", root / "classifier", head="sequence_classification", **labels)
    embedder = add_sentence_transformers_files(tiny_checkpoint("bert", root / "embedder"), normalize=True)
    m3 = tiny_checkpoint("xlm-roberta", root / "m3")
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), m3 / f"{name}.pt")
    outcome = reward_model("Qwen2ForRewardModel", 1)(root / "outcome")
    process = reward_model("Qwen2ForProcessRewardModel", 2)(root / "process")
    return {"classifier": classifier, "embedder": embedder, "m3": m3, "outcome": outcome, "process": process}


@pytest.fixture(scope="module")
def vllm(paths: dict[str, Path]) -> Iterator[RunningServer]:
    loop = Loop()
    engines = {
        name: AsyncEngine(path, loop=loop, threads=1, dtype="float32", any_dimensions=name in ("embedder", "m3"))
        for name, path in paths.items()
    }
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()
    loop.close()


@pytest.fixture(scope="module")
def logits(paths: dict[str, Path]) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(paths["classifier"])
    model = AutoModelForSequenceClassification.from_pretrained(paths["classifier"]).eval()
    with torch.inference_mode():
        return torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in TEXTS])


def hidden_states(folder: Path, text: str) -> tuple[list[int], np.ndarray]:
    encoded = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return encoded["input_ids"][0].tolist(), model(**encoded).last_hidden_state[0].double().numpy()


def rows(paths: dict[str, Path], text: str) -> np.ndarray:
    return hidden_states(paths["embedder"], text)[1]


def linear(folder: Path, name: str, hidden: np.ndarray) -> np.ndarray:
    state = torch.load(folder / f"{name}.pt", weights_only=True)
    return hidden @ state["weight"].double().numpy().T + state["bias"].double().numpy()


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def ask(server: RunningServer, path: str, **body: Any) -> dict[str, Any]:
    answer = server.http.post(path, json={"input": TEXTS, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


class TestClassify:
    @pytest.mark.parametrize("path", ["/classify", "/vllm/classify"])
    def test_probabilities_in_the_order_of_the_labels(
        self, vllm: RunningServer, logits: torch.Tensor, path: str
    ) -> None:
        answer = ask(vllm, path, model="classifier")
        assert_close(np.array([item["probs"] for item in answer["data"]]), logits.softmax(-1))
        assert [item["label"] for item in answer["data"]] == [LABELS[i] for i in logits.argmax(-1).tolist()]
        assert [(item["index"], item["num_classes"]) for item in answer["data"]] == [(0, 3), (1, 3), (2, 3)]
        assert answer["id"].startswith("classify-")
        assert (answer["object"], answer["model"]) == ("list", "classifier")
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
        assert answer["usage"]["completion_tokens"] == 0

    def test_logits(self, vllm: RunningServer, logits: torch.Tensor) -> None:
        answer = ask(vllm, "/classify", model="classifier", use_activation=False)
        assert_close(np.array([item["probs"] for item in answer["data"]]), logits, "raw")

    def test_a_long_text_is_refused_or_cut(self, vllm: RunningServer) -> None:
        body = {"model": "classifier", "input": ["the cat", LONG_TEXT]}
        refused = vllm.http.post("/vllm/classify", json=body)
        assert refused.status_code == 400
        assert "input[1]" in refused.json()["error"]["message"]
        cut = ask(vllm, "/classify", **body, truncate_prompt_tokens=-1)
        ids = AutoTokenizer.from_pretrained(vllm.engines["classifier"]._core.spec.root)(
            LONG_TEXT, truncation=True, max_length=20
        )["input_ids"]
        shorter = ask(vllm, "/classify", **body, truncate_prompt_tokens=20)
        by_ids = ask(vllm, "/classify", model="classifier", input=[ids])
        assert_close(np.array(shorter["data"][1]["probs"]), np.array(by_ids["data"][0]["probs"]))
        assert cut["usage"]["total_tokens"] > shorter["usage"]["total_tokens"]

    def test_a_model_without_labels_is_501(self, vllm: RunningServer) -> None:
        answer = vllm.http.post("/vllm/classify", json={"model": "embedder", "input": "a"})
        assert answer.status_code == 501
        assert answer.json()["error"]["type"] == "NotImplementedError"
        assert answer.json()["error"]["code"] == 501


def reward_scores(folder: Path, ids: list[int]) -> torch.Tensor:
    """The two-layer score of every token."""
    model, weights = AutoModel.from_pretrained(folder).eval(), load_file(folder / "model.safetensors")
    with torch.inference_mode():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    inner = torch.relu(hidden @ weights["score.0.weight"].T + weights["score.0.bias"])
    return inner @ weights["score.2.weight"].T + weights["score.2.bias"]


class TestRewards:
    IDS = ([20, 31, STEP_TAG_ID, 44, STEP_TAG_ID], [9, STEP_TAG_ID], [7, 8])

    @pytest.mark.parametrize("path", ["/pooling", "/vllm/pooling"])
    @pytest.mark.parametrize("columns", [(0,), (1,), (1, 0), None])
    @pytest.mark.parametrize("activation", [None, True, False])
    def test_columns_of_steps_come_before_the_activation(
        self,
        vllm: RunningServer,
        paths: dict[str, Path],
        path: str,
        columns: tuple[int, ...] | None,
        activation: bool | None,
    ) -> None:
        params = {"returned_token_ids": columns, "use_activation": activation}
        data = ask(vllm, path, model="process", input=self.IDS, params=params)["data"]
        for item, ids in zip(data, self.IDS, strict=True):
            chosen = reward_scores(paths["process"], ids)[[i == STEP_TAG_ID for i in ids]][:, list(columns or (0, 1))]
            activated = chosen.sigmoid() if len(columns or (0, 1)) == 1 else chosen.softmax(-1)
            expected = chosen if activation is False else activated
            assert_close(np.array(item["data"]).reshape(expected.shape), expected, "raw")

    @pytest.mark.parametrize("path", ["/pooling", "/classify"])
    @pytest.mark.parametrize("activation", [None, True, False])
    def test_an_outcome_is_raw_unless_its_sigmoid_is_asked_for(
        self, vllm: RunningServer, paths: dict[str, Path], path: str, activation: bool | None
    ) -> None:
        data = ask(vllm, path, model="outcome", input=self.IDS, use_activation=activation)["data"]
        found = np.array([item["probs" if path == "/classify" else "data"] for item in data])
        raw = torch.stack([reward_scores(paths["outcome"], ids)[-1] for ids in self.IDS])
        assert_close(found, raw.sigmoid() if activation else raw, "raw")


class TestPooling:
    def test_the_first_task_is_the_default(self, vllm: RunningServer, paths: dict[str, Path]) -> None:
        answer = ask(vllm, "/pooling", model="embedder")
        expected = np.stack([unit(rows(paths, text).mean(axis=0)) for text in TEXTS])
        assert_close(np.array([item["data"] for item in answer["data"]]), expected)
        assert {item["object"] for item in answer["data"]} == {"pooling"}
        assert answer["id"].startswith("pooling-")

    def test_classify_is_a_task(self, vllm: RunningServer, logits: torch.Tensor) -> None:
        answer = ask(vllm, "/pooling", model="classifier", task="classify", use_activation=False)
        assert_close(np.array([item["data"] for item in answer["data"]]), logits, "raw")

    def test_options_of_the_task(self, vllm: RunningServer, paths: dict[str, Path]) -> None:
        answer = ask(vllm, "/pooling", model="embedder", params={"dimensions": 8, "use_activation": False})
        expected = np.stack([rows(paths, text).mean(axis=0)[:8] for text in TEXTS])
        assert_close(np.array([item["data"] for item in answer["data"]]), expected, "raw")

    def test_pieces(self, vllm: RunningServer, paths: dict[str, Path]) -> None:
        answer = ask(vllm, "/pooling", model="embedder", input=TEXTS[0], params={"segments": [[0, 2], [1, 3]]})
        hidden = rows(paths, TEXTS[0])
        expected = np.stack([unit(hidden[0:2].mean(axis=0)), unit(hidden[1:3].mean(axis=0))])
        assert_close(np.array(answer["data"][0]["data"]), expected)

    def test_a_row_for_each_token(self, vllm: RunningServer, paths: dict[str, Path]) -> None:
        data = ask(vllm, "/pooling", model="m3", task="token_embed")["data"]
        for item, text in zip(data, TEXTS, strict=True):
            ids, hidden = hidden_states(paths["m3"], text)
            expected = np.stack([unit(row) for row in linear(paths["m3"], "colbert_linear", hidden[1:])])
            assert_close(np.array(item["data"]), expected)
            assert len(ids) == len(expected) + 1

    def test_a_weight_for_each_term(self, vllm: RunningServer, paths: dict[str, Path]) -> None:
        data = ask(vllm, "/pooling", model="m3", task="embed_sparse")["data"]
        for item, text in zip(data, TEXTS, strict=True):
            ids, hidden = hidden_states(paths["m3"], text)
            expected: dict[int, float] = {}
            for token, (value,) in zip(ids[1:-1], linear(paths["m3"], "sparse_linear", hidden[1:-1]), strict=True):
                expected[token] = max(expected.get(token, 0.0), float(value))
            terms = sorted(token for token, value in expected.items() if value > 0)
            assert item["data"]["indices"] == terms
            assert_close(np.array(item["data"]["values"]), np.array([expected[token] for token in terms]), "raw")
        assert any(item["data"]["indices"] for item in data)

    @pytest.mark.parametrize("dtype", [None, "float32", "float16"])
    @pytest.mark.parametrize("endianness", [None, "native", "little", "big"])
    def test_base64_and_bytes(self, vllm: RunningServer, dtype: str | None, endianness: str | None) -> None:
        options = {"model": "m3", "task": "token_embed", "embed_dtype": dtype, "endianness": endianness}
        floats = [np.array(item["data"]) for item in ask(vllm, "/pooling", model="m3", task="token_embed")["data"]]
        order = {"big": ">", "little": "<"}.get(str(endianness), "=")
        read = np.dtype(dtype or "float32").newbyteorder(order)  # type: ignore[arg-type]
        atol = 1e-3 if dtype == "float16" else 1e-6
        items = ask(vllm, "/pooling", **options, encoding_format="base64")["data"]
        for item, expected in zip(items, floats, strict=True):
            found = np.frombuffer(base64.b64decode(item["data"]), read).reshape(item["shape"])
            np.testing.assert_allclose(found.astype(np.float64), expected, atol=atol)
        answer = vllm.http.post("/pooling", json={"input": TEXTS, **options, "encoding_format": "bytes"})
        assert answer.headers["content-type"] == "application/octet-stream"
        metadata = json.loads(answer.headers["metadata"])
        for item, expected in zip(metadata["data"], floats, strict=True):
            found = np.frombuffer(answer.content[item["start"] : item["end"]], read).reshape(item["shape"])
            np.testing.assert_allclose(found.astype(np.float64), expected, atol=atol)
            assert item["embed_dtype"] == (dtype or "float32")
        only = vllm.http.post("/pooling", json={"input": TEXTS, **options, "encoding_format": "bytes_only"})
        assert only.content == answer.content
        assert "metadata" not in only.headers

    def test_the_prefix_has_no_other_fields(self, vllm: RunningServer) -> None:
        items = ask(vllm, "/vllm/pooling", model="embedder", encoding_format="base64")["data"]
        assert all(set(item) == {"index", "object", "data"} for item in items)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": "a", "dimensions": 8}, "dimensions"),
        ({"input": "a", "task": "classify"}, "task"),
        ({"input": "a", "task": "nope"}, "task"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
        ({"input": "a", "add_special_tokens": "no"}, "add_special_tokens"),
        ({"input": "a", "params": {"nope": 1}}, "params"),
        ({"input": "a", "params": {"segments": [[0, 99]]}}, "segments"),
        ({"input": "a", "params": {"segments": [[1]]}}, "segments"),
        ({"input": "a", "params": {"step_tag_id": 3}}, "step_tag_id"),
    ],
)
def test_what_is_wrong_is_named(vllm: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = vllm.http.post("/vllm/pooling", json={"model": "embedder", **body})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "BadRequestError"
    assert answer.json()["error"]["code"] == 400


def test_sparse_vectors_are_numbers(vllm: RunningServer) -> None:
    body = {"model": "m3", "input": "the cat", "task": "embed_sparse", "encoding_format": "bytes"}
    answer = vllm.http.post("/vllm/pooling", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "encoding_format")


def test_unknown_model_is_404(vllm: RunningServer) -> None:
    answer = vllm.http.post("/vllm/pooling", json={"model": "nope", "input": "a"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")


def test_a_bare_error_is_for_all_clients(vllm: RunningServer) -> None:
    body = vllm.http.post("/pooling", json={"model": "nope", "input": "a"}).json()
    assert {"error", "message", "detail"} <= set(body)


def test_example_of_the_page(vllm: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    example = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)).replace("my-reranker", "embedder")
    example = example.replace("http://127.0.0.1:8000", vllm.url).replace("my-classifier", "classifier")
    exec(compile(example, "vllm.md", "exec"), {})
    assert capsys.readouterr().out.count(", 3)") == 2


def test_error_example(vllm: RunningServer) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert vllm.http.post("/vllm/pooling", json={"model": "embedder"}).json() == json.loads(example)


@pytest.mark.parametrize("names", [("queries", "documents"), ("data_1", "data_2"), ("text_1", "text_2")])
@pytest.mark.parametrize("path", ["/score", "/v1/score", "/vllm/score"])
def test_scores_are_the_engines(vllm: RunningServer, paths: dict[str, Path], names: tuple[str, str], path: str) -> None:
    """1:1, 1:N and N:N, in the caller's order, under each of vLLM's names."""
    reference = SentenceTransformer(str(paths["embedder"]), device="cpu").encode(TEXTS)
    cosines = reference @ reference.T
    for queries, documents, expected in (
        (TEXTS[0], TEXTS[1], [cosines[0, 1]]),
        (TEXTS[0], TEXTS, cosines[0]),
        (TEXTS, TEXTS[::-1], [cosines[0, 2], cosines[1, 1], cosines[2, 0]]),
    ):
        body = {"model": "embedder", names[0]: queries, names[1]: documents}
        answer = vllm.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        assert [(item["index"], item["object"]) for item in data] == [(i, "score") for i in range(len(expected))]
        assert_close([item["score"] for item in data], np.array(expected))
        assert answer.json()["id"].startswith("score-")
        assert answer.json()["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "embedder", "queries": "the cat"}, 400, "documents"),
        ({"model": "embedder", "documents": ["the cat"]}, 400, "queries"),
        ({"model": "embedder"}, 400, "queries"),
        ({"model": "embedder", "queries": TEXTS, "documents": TEXTS[:2]}, 400, "documents"),
        ({"model": "embedder", "queries": "the cat", "documents": []}, 400, "documents"),
        ({"model": "embedder", "queries": "the cat", "documents": ["a dog", 3]}, 400, "documents"),
        ({"model": "classifier", "queries": "the cat", "documents": "a dog"}, 501, "model"),
    ],
)
def test_pairs_that_cannot_be_scored(vllm: RunningServer, body: dict[str, Any], status: int, param: str) -> None:
    answer = vllm.http.post("/vllm/score", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_rerank_gives_documents_back(vllm: RunningServer) -> None:
    body = {"model": "embedder", "query": TEXTS[2], "documents": TEXTS, "top_n": 0, "max_tokens_per_doc": 0}
    answer = vllm.http.post("/vllm/rerank", json=body).json()
    assert answer["results"][0]["index"] == 2
    assert answer["results"][0]["document"] == {"text": TEXTS[2]}
    assert len(answer["results"]) == 3
    assert answer["usage"].keys() == {"prompt_tokens", "total_tokens"}
    best = vllm.http.post("/vllm/rerank", json={**body, "top_n": 1}).json()["results"]
    assert best == answer["results"][:1]

"""`cenote classify`: own labels and the caller's. Reference: transformers on the same folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, ZeroShotClassificationPipeline

from cenote.cli import run
from conftest import Cenote
from tiny import tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water on the stone"]
LONG_TEXT = "the cat and a dog " * 60


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = {0: "bad", 1: "fair", 2: "good"}
    return tiny_checkpoint(
        "bert",
        tmp_path_factory.mktemp("classifier"),
        head="sequence_classification",
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )


def logits(folder: Path, texts: list[str]) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def table(found: list[dict[str, object]]) -> np.ndarray:
    return np.array([[line["scores"][name] for name in ("bad", "fair", "good")] for line in found])  # type: ignore[index]


def test_arguments_to_json_lines(cenote: Cenote, classifier: Path) -> None:
    done = cenote("classify", classifier, *TEXTS)
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    expected = logits(classifier, TEXTS).softmax(-1)
    assert [line["text"] for line in found] == TEXTS
    assert_close(table(found), expected)
    assert [line["label"] for line in found] == [("bad", "fair", "good")[i] for i in expected.argmax(-1).tolist()]
    assert [line["score"] for line in found] == [max(line["scores"].values()) for line in found]  # type: ignore[attr-defined]
    assert all(line["truncated"] is False and line["num_tokens"] for line in found)


def test_raw_scores_and_json_lines_in_and_out(classifier: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)))
    assert run(["classify", str(classifier), "--file", str(source), "--output", str(output), "--raw-scores"]) == 0
    found = lines(output.read_text())
    assert [line["id"] for line in found] == [0, 1, 2]
    assert_close(table(found), logits(classifier, TEXTS), "raw")


def test_a_reward_is_raw_unless_its_sigmoid_is_asked_for(tmp_path: Path) -> None:
    folder = tiny_checkpoint("qwen3", tmp_path / "reward", head="sequence_classification", num_labels=1)
    raw, output = logits(folder, TEXTS), tmp_path / "out.jsonl"
    for flags, expected in (([], raw), (["--raw-scores"], raw), (["--no-raw-scores"], raw.sigmoid())):
        arguments = ["--dtype", "float32", "--output", str(output), *flags]
        assert run(["classify", str(folder), *TEXTS, *arguments]) == 0
        assert_close(np.array([[line["score"]] for line in lines(output.read_text())]), expected, "raw")


def test_long_texts_are_cut_or_named(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text(f"the cat\n{LONG_TEXT}\n")
    assert run(["classify", str(classifier), "--file", str(source), "--output", str(output)]) == 0
    assert [line["truncated"] for line in lines(output.read_text())] == [False, True]
    assert run(["classify", str(classifier), "--file", str(source), "--no-truncate"]) == 1
    assert "line 2 has" in capsys.readouterr().err


@pytest.fixture(scope="module")
def entailment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    return tiny_checkpoint(
        "bert",
        tmp_path_factory.mktemp("nli"),
        head="sequence_classification",
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_of_ones_own(entailment: Path, tmp_path: Path, multi_label: bool) -> None:
    output = tmp_path / "out.jsonl"
    options = ["--labels", "bird, stone,water", "--hypothesis-template", "the {}", "--output", str(output)]
    options += ["--multi-label"] if multi_label else []
    assert run(["classify", str(entailment), *TEXTS, *options]) == 0
    pipeline = ZeroShotClassificationPipeline(
        model=AutoModelForSequenceClassification.from_pretrained(entailment),
        tokenizer=AutoTokenizer.from_pretrained(entailment),
        device="cpu",
    )
    for text, line in zip(TEXTS, lines(output.read_text()), strict=True):
        expected = pipeline(text, ["bird", "stone", "water"], hypothesis_template="the {}", multi_label=multi_label)
        assert line["label"] == expected["labels"][0]
        names = sorted(expected["labels"])
        scores = dict(zip(expected["labels"], expected["scores"], strict=True))
        assert_close([line["scores"][name] for name in names], [scores[name] for name in names])  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--multi-label"], "--labels"),
        (["--hypothesis-template", "a {}"], "--labels"),
        (["--labels", "a,b", "--raw-scores"], "--raw-scores"),
        (["--labels", "a,b"], "entailment"),
        (["--file", "x.txt"], "either texts or --file"),
    ],
)
def test_options_that_do_not_go_together(
    classifier: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert run(["classify", str(classifier), "the cat", *options]) == 1
    assert named in capsys.readouterr().err


def test_another_model_says_what_it_offers(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["classify", str(model), "the cat"]) == 1
    assert "embed" in capsys.readouterr().err

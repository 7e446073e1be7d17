"""`cenote reward`: one number for each text. Reference: transformers on the same folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cenote.cli import run
from tiny import tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water on the stone"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint("qwen3", tmp_path_factory.mktemp("reward"), head="sequence_classification", num_labels=1)


def test_one_number_for_each_text(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert run(["reward", str(folder), *TEXTS, "--output", str(output)]) == 0
    found = [json.loads(line)["reward"] for line in output.read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS])
    assert_close(found, expected, "raw")


def test_a_long_text_is_refused_by_its_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.txt"
    source.write_text("the cat\n" + "the cat and a dog " * 60 + "\n")
    assert run(["reward", str(folder), "--file", str(source)]) == 1
    assert "line 2 has" in capsys.readouterr().err


def test_another_model_says_so(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reward", str(model), "the cat"]) == 1
    assert "not a reward model" in capsys.readouterr().err

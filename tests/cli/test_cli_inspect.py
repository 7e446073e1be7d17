"""`cenote inspect`: what was read, what was decided, why, and what is left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cenote.cli import run


def test_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model)]) == 0
    printed = capsys.readouterr().out
    for line in ("Read from the checkpoint", "Decided", "Weights", "Prompts"):
        assert line in printed
    assert "1_Pooling/config.json" in printed
    assert "pooler.dense.weight" in printed


def test_json_names_decisions_with_reasons_and_unused_weights(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tasks"] == ["embed"]
    assert report["prompts"] == {"query": "the cat: ", "document": "a dog: "}
    assert report["unused_weights"] == ["pooler.dense.bias", "pooler.dense.weight"]
    decided = {one["what"]: one for one in report["decisions"]}
    assert decided["dtype"]["value"] == "float32"
    assert {"device", "dtype", "tasks", "max_length", "attention"} <= set(decided)
    assert all(one["reason"] for one in report["decisions"])
    assert all(fact["source"] for fact in report["facts"])


def test_options_change_the_decisions(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--json", "--max-length", "20"]) == 0
    decided = {one["what"]: one["value"] for one in json.loads(capsys.readouterr().out)["decisions"]}
    assert decided["max_length"] == "20"


def test_without_weights_nothing_is_loaded(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--no-weights"]) == 0
    assert "not loaded" in capsys.readouterr().out


def test_checkpoint_that_would_not_start_is_the_same_error(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in model.rglob("*"):
        target = tmp_path / path.relative_to(model)
        target.mkdir(exist_ok=True) if path.is_dir() else target.write_bytes(path.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert run(["inspect", str(tmp_path)]) == 1
    assert "model.safetensors" in capsys.readouterr().err

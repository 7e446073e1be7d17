"""Decisions: pure, each with a reason, and no text is ever accepted that no step can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.checkpoint.decide import DeviceFacts, decide
from cenote.config import EngineOptions
from cenote.errors import OptionError
from tiny import CheckpointFactory

CPU = DeviceFacts(kind="cpu", name="cpu", description="CPU", bfloat16=False, reason="no GPU was found")
GPU = DeviceFacts(kind="cuda", name="cuda:0", description="a GPU", bfloat16=True, reason="a GPU was found")
AMX = replace(CPU, bfloat16=True, amx=True)
OLD_GPU = replace(GPU, bfloat16=False)


@pytest.fixture
def bert(checkpoint: CheckpointFactory) -> ModelSpec:
    return read_checkpoint(checkpoint("bert"), pooling="mean")


@pytest.mark.parametrize(
    ("family", "stored", "facts", "dtype"),
    [
        ("bert", "float32", CPU, "float32"),
        ("bert", "bfloat16", CPU, "float32"),
        ("bert", "float32", AMX, "bfloat16"),
        ("bert", "float32", GPU, "float16"),
        ("bert", "bfloat16", GPU, "bfloat16"),
        ("bert", "bfloat16", OLD_GPU, "float16"),
        ("gemma2", "float32", GPU, "bfloat16"),
        ("gemma2", "float32", OLD_GPU, "float32"),
    ],
)
def test_dtype(checkpoint: CheckpointFactory, family: str, stored: str, facts: DeviceFacts, dtype: str) -> None:
    spec = read_checkpoint(checkpoint(family), pooling="last" if family == "gemma2" else "mean")
    spec = replace(spec, config={**spec.config, "dtype": stored})
    assert decide(spec, EngineOptions(), facts).dtype == dtype


def test_gemma_in_float16_is_refused(checkpoint: CheckpointFactory) -> None:
    spec = read_checkpoint(checkpoint("gemma2"), pooling="last")
    with pytest.raises(OptionError, match="overflows float16"):
        decide(spec, EngineOptions(dtype="float16"), GPU)


def test_int8_is_made_from_float32_on_a_cpu(bert: ModelSpec) -> None:
    asked = decide(bert, EngineOptions(dtype="int8"), CPU)
    assert (asked.dtype, asked.loaded_dtype) == ("int8", "float32")
    assert decide(bert, EngineOptions(dtype="bfloat16"), CPU).loaded_dtype == "bfloat16"
    with pytest.raises(OptionError, match="int8 runs on a CPU only"):
        decide(bert, EngineOptions(dtype="int8"), GPU)


def test_limits(bert: ModelSpec) -> None:
    assert decide(bert, EngineOptions(), CPU).max_length == 64
    assert decide(bert, EngineOptions(max_length=20), CPU).max_length == 20
    with pytest.raises(OptionError, match="over the checkpoint's limit of 64"):
        decide(bert, EngineOptions(max_length=65), CPU)
    lowered = decide(bert, EngineOptions(max_batch_tokens=32), CPU)
    assert (lowered.max_length, lowered.step_tokens) == (32, 32)
    assert decide(bert, EngineOptions(max_batch_tokens=4096), CPU).step_tokens == 4096


def test_every_decision_has_a_reason(bert: ModelSpec) -> None:
    decisions = list(decide(bert, EngineOptions(), GPU))
    assert {"device", "dtype", "tasks", "max_length", "step_tokens"} <= {each.what for each in decisions}
    assert all(each.value and each.reason for each in decisions)

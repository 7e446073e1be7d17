"""The memory of the largest step on a CPU: computed from small steps, against what that step takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cenote import Engine
from cenote.checkpoint import read_checkpoint
from cenote.errors import CheckpointError
from cenote.models.load import load_model
from cenote.params import Task
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.memory import (
    StepMemory,
    _LiveBytes,
    _peak_bytes,
    check_step_memory,
    free_memory,
    is_out_of_memory,
    measure_step_memory,
)
from cenote.runtime.pace import Pace
from cenote.runtime.runner import ModelRunner
from cenote.runtime.warmup import warm_up
from tiny import CheckpointFactory


def runner_of(folder: Path) -> ModelRunner:
    spec = read_checkpoint(folder, pooling="mean")
    model = load_model(spec, dtype=torch.float32, device=torch.device("cpu"))
    return ModelRunner(model, build_pooler(spec, model, any_dimensions=False), CpuDevice())


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2", "qwen3"])
def test_the_bound_is_above_what_the_largest_step_takes_and_not_far(family: str, checkpoint: CheckpointFactory) -> None:
    """DeBERTa keeps its attention scores, whose memory grows with the square of the length."""
    runner, max_length = runner_of(checkpoint(family, max_position_embeddings=1024)), 1000
    bound = measure_step_memory(runner, ("embed",), max_length).bound(max_length, max_length)
    peak = _peak_bytes(runner, "embed", max_length)
    assert peak <= bound <= 2 * peak


def test_only_scores_that_are_kept_grow_with_the_square(checkpoint: CheckpointFactory) -> None:
    def pairs(family: str) -> float:
        return measure_step_memory(
            runner_of(checkpoint(family, max_position_embeddings=1024)), ("embed",), 256
        ).bytes_per_pair

    assert pairs("bert") == pytest.approx(0, abs=1)
    assert pairs("deberta-v2") > 4


def test_a_tensor_counts_once_and_no_longer_than_it_lives() -> None:
    with _LiveBytes() as live:
        for _ in range(5):
            torch.ones(1000)
        kept = torch.ones(1500)
        kept.view(5, 300).add_(1)
        torch.ones(500)
    assert live.peak == 4 * (1500 + 500)


def test_what_does_not_fit_is_refused_with_the_option_to_lower() -> None:
    memory = StepMemory(bytes_per_token=2**20, bytes_per_pair=0)
    check_step_memory(memory, 1000, 512, free=2**31)
    with pytest.raises(CheckpointError, match=r"2\.0 GiB, and 2\.0 GiB are free: lower max_batch_tokens or max_length"):
        check_step_memory(memory, 2000, 512, free=2**31)
    assert memory.bound(memory.most_tokens(2**31, 512), 512) <= 2**31


def test_the_pace_stays_within_the_memory() -> None:
    assert Pace(tokens_per_second=1e6, most_tokens=700).step_tokens == 700
    assert Pace(tokens_per_second=1, most_tokens=100).step_tokens == 100


def test_the_engine_shows_the_bound(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean", device="cpu") as engine:
        decision = next(each for each in engine.info.decisions if each.what == "step_memory")
    assert decision.value.endswith(" MiB")
    assert "GiB are free" in decision.reason


def _cpu_out_of_memory() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def _gpu_out_of_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("fail", [_cpu_out_of_memory, _gpu_out_of_memory])
def test_running_out_of_memory_in_the_warm_up_names_the_options(fail: object, checkpoint: CheckpointFactory) -> None:
    assert callable(fail)
    runner = runner_of(checkpoint("bert"))
    runner.model.backbone.register_forward_pre_hook(lambda *_: fail())
    tasks: tuple[Task, ...] = ("embed",)
    with pytest.raises(CheckpointError, match=r"warming up 'embed'.*lower max_batch_tokens or max_length"):
        warm_up(runner, tasks, step_tokens=128, max_length=64)


def test_other_errors_of_the_warm_up_stay_what_they_are(checkpoint: CheckpointFactory) -> None:
    runner = runner_of(checkpoint("bert"))

    def hook(*_: object) -> None:
        raise ValueError("planted")

    runner.model.backbone.register_forward_pre_hook(hook)
    with pytest.raises(ValueError, match="planted") as caught:
        warm_up(runner, ("embed",), step_tokens=128, max_length=64)
    assert not is_out_of_memory(caught.value)


def test_free_memory_is_that_of_this_machine() -> None:
    assert 2**24 < free_memory() < 2**50

"""Steps that run at the same time share nothing that a step changes: a loaded model is only read, in every family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.families import FAMILIES as SUPPORTED
from cenote.models.load import LoadedModel, load_model
from cenote.models.rewrite import rewrite
from cenote.params import PoolingParams, Task
from cenote.pooling.build import build_pooler
from cenote.pooling.dispatch import DispatchPooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece
from cenote.runtime.request import Sequence as TokenSequence
from cenote.runtime.runner import InFlight, ModelRunner, batch_order, with_updates
from cenote.runtime.threaded import ThreadedRunner
from read_only import ReadOnly
from tiny import FAMILIES, CheckpointFactory, Head

NUM_ROUNDS = 100
HEADS: dict[str, tuple[Head, Task]] = {
    "bert": ("sequence_classification", "classify"),
    "roberta": ("token_classification", "token_classify"),
    "distilbert": ("masked_lm", "embed_sparse"),
    "modernbert": ("sequence_classification", "classify"),
    "deberta-v2": ("masked_lm", "embed_sparse"),
    "eurobert": ("sequence_classification", "classify"),
    "qwen3": ("sequence_classification", "classify"),
    "llama": ("token_classification", "token_classify"),
}


@dataclass(frozen=True)
class Loaded:
    """A model as it is before its first step, and what pools its rows."""

    model: LoadedModel
    pooler: DispatchPooler
    task: Task

    def step(self, lengths: Sequence[int], seed: int) -> list[Piece]:
        params = with_updates({self.task: PoolingParams(task=self.task)}, self.pooler)
        random = np.random.default_rng(seed)
        texts = [TokenSequence(token_ids=random.integers(7, 190, n), params=params, num_keys=n) for n in lengths]
        return sorted([Piece(sequence=text, stop=len(text)) for text in texts], key=batch_order)


def load(folder: Path, task: Task = "embed", dtype: str = "float32") -> Loaded:
    spec = read_checkpoint(folder, task=task, pooling="mean" if task == "embed" else None)
    model = load_model(spec, dtype=torch.float32, device=torch.device("cpu"))
    rewrite(model, dtype)
    return Loaded(model, build_pooler(spec, model), task)


def values(in_flight: InFlight, task: Task) -> list[np.ndarray[Any, Any]]:
    """Wait for a step and return the arrays of its texts."""
    found = []
    for result in in_flight.result():
        assert isinstance(result, dict)
        value: Any = result[task]
        found += [value] if isinstance(value, np.ndarray) else [value.indices, value.values]
    return found


def assert_equal(step: Sequence[np.ndarray[Any, Any]], alone: Sequence[np.ndarray[Any, Any]]) -> None:
    assert len(step) == len(alone)
    assert all(map(np.array_equal, step, alone))


def guard(loaded: Loaded) -> ReadOnly:
    return ReadOnly([loaded.model.module, loaded.model.backbone, loaded.pooler])


def check_only_read(loaded: Loaded) -> None:
    runner = ThreadedRunner(loaded.model, loaded.pooler, CpuDevice(), 2)
    steps = [loaded.step([3, 50], 0), loaded.step([50, 50, 7], 1), loaded.step([1], 2)]
    with guard(loaded).on():
        for _ in range(3):
            for running in [runner.launch(step) for step in steps]:
                assert values(running, loaded.task)


def test_every_family_is_here() -> None:
    assert {family.model_type for family in FAMILIES.values()} == set(SUPPORTED)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_writes_nothing_of_a_model(family: str, checkpoint: CheckpointFactory) -> None:
    check_only_read(load(checkpoint(family)))


@pytest.mark.parametrize("family", HEADS)
def test_a_step_writes_nothing_of_a_head(family: str, checkpoint: CheckpointFactory) -> None:
    head, task = HEADS[family]
    check_only_read(load(checkpoint(family, head=head), task))


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "qwen3"])
def test_a_step_writes_nothing_in_int8(family: str, checkpoint: CheckpointFactory) -> None:
    check_only_read(load(checkpoint(family), dtype="int8"))


@pytest.mark.parametrize(
    "write",
    [
        lambda model: setattr(model, "training", False),
        lambda model: setattr(model.config, "use_cache", False),
        lambda model: model.register_forward_pre_hook(lambda *_: None).remove(),
        lambda model: model.register_buffer("more", torch.zeros(1)),
        lambda model: next(model.parameters()).add_(0),
        lambda model: model.config.architectures.append("more"),
    ],
    ids=["attribute", "config", "hook", "buffer", "in place", "list"],
)
def test_the_guard_sees_a_write(write: Callable[[Any], object], checkpoint: CheckpointFactory) -> None:
    loaded = load(checkpoint("bert"))
    with pytest.raises((AssertionError, TypeError)), torch.inference_mode(), guard(loaded).on():
        write(loaded.model.module)


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_side_by_side_are_those_of_one_thread_to_the_bit(family: str, checkpoint: CheckpointFactory) -> None:
    """The same steps on one thread: a product of other rows may add its terms in another order."""
    loaded = load(checkpoint(family))
    alone = ModelRunner(loaded.model, loaded.pooler, CpuDevice())
    steps = [loaded.step(lengths, seed) for seed, lengths in enumerate([(3, 50), (50,), (3, 3, 50, 3), (50, 3)])]
    expected = [values(alone.launch(step), "embed") for step in steps]
    for num_threads in (2, 4):
        runner = ThreadedRunner(loaded.model, loaded.pooler, CpuDevice(), num_threads)
        running = [(runner.launch(steps[n % 4]), n % 4) for n in range(NUM_ROUNDS)]
        for in_flight, which in running:
            assert_equal(values(in_flight, "embed"), expected[which])

"""Steps that run at the same time share nothing that a step changes: a loaded model is only read, in every family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PretrainedConfig

from cenote import Engine
from cenote.checkpoint import read_checkpoint
from cenote.models.load import LoadedModel, load_model
from cenote.models.rewrite import rewrite
from cenote.params import PoolingParams, Task
from cenote.pooling.build import build_pooler
from cenote.pooling.dispatch import DispatchPooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece, Results
from cenote.runtime.request import Sequence as TokenSequence
from cenote.runtime.runner import InFlight, ModelRunner, batch_order, with_updates
from cenote.runtime.threaded import ThreadedRunner
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


class Guard:
    """Refuses every write to the modules of a model and to their configs, and finds those to their tensors."""

    def __init__(self, loaded: Loaded) -> None:
        roots = (loaded.model.module, loaded.model.backbone, loaded.pooler)
        modules = [each for root in roots for each in root.modules()]
        configs = [each.config for each in modules if isinstance(getattr(each, "config", None), PretrainedConfig)]
        self.kept: dict[int, object] = {id(each): each for each in [*modules, *configs]}
        tensors = [tensor for each in self.kept.values() for tensor in _tensors(vars(each))]
        self.tensors = [(tensor, _dense(tensor).clone(), _version(tensor)) for tensor in tensors]

    @contextmanager
    def on(self) -> Iterator[None]:
        classes = {cls for each in self.kept.values() for cls in type(each).__mro__ if cls is not object}
        with pytest.MonkeyPatch.context() as patch:
            for cls in classes:
                for method in {"__setattr__", "__delattr__"} & set(vars(cls)):
                    patch.setattr(cls, method, self._refusing(getattr(cls, method)))
            for each in self.kept.values():
                for name, content in list(vars(each).items()):
                    if isinstance(content, dict):  # of hooks, buffers and the like, which torch also writes to itself
                        patch.setitem(vars(each), name, MappingProxyType(content))
            yield
        for tensor, before, version in self.tensors:
            assert torch.equal(_dense(tensor), before)
            assert _version(tensor) == version

    def _refusing(self, write: Callable[..., None]) -> Callable[..., None]:
        def refuse(target: object, name: str, *value: object) -> None:
            if id(target) in self.kept:
                raise AssertionError(f"a step writes {name} of {type(target).__name__}")
            write(target, name, *value)

        return refuse


def _tensors(content: object) -> Iterator[torch.Tensor]:
    """Find the tensors in what a module holds; the modules in it are looked at by themselves."""
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, Mapping):
        for each in content.values():
            yield from _tensors(each)
    elif isinstance(content, list | tuple):
        for each in content:
            yield from _tensors(each)
    elif type(content).__module__.startswith("cenote") and not isinstance(content, nn.Module):
        yield from _tensors(getattr(content, "__dict__", {}))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def check_only_read(loaded: Loaded) -> None:
    runner = ThreadedRunner(loaded.model, loaded.pooler, CpuDevice(), 2)
    steps = [loaded.step([3, 50], 0), loaded.step([50, 50, 7], 1), loaded.step([1], 2)]
    with Guard(loaded).on():
        for _ in range(3):
            for running in [runner.launch(step) for step in steps]:
                assert values(running, loaded.task)


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
    ],
    ids=["attribute", "config", "hook", "buffer", "in place"],
)
def test_the_guard_sees_a_write(write: Callable[[Any], object], checkpoint: CheckpointFactory) -> None:
    loaded = load(checkpoint("bert"))
    with pytest.raises((AssertionError, TypeError)), torch.inference_mode(), Guard(loaded).on():
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

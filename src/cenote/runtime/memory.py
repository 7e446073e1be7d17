"""What the largest step on a CPU takes of its memory, computed from two small ones."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cenote.errors import CheckpointError
from cenote.params import Task
from cenote.runtime.made_up import made_up_texts
from cenote.runtime.runner import ModelRunner

_PROBE_TOKENS = (64, 256)
_USABLE_SHARE = 0.8
"""Of the free memory: the rest is for requests, answers and whatever else runs."""


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """What all steps that run at a time need beside the weights: `bytes_per_token` of each token of one of them, and
    `bytes_per_pair` of each pair of tokens of one text, where an attention keeps its scores or a mask.
    """

    bytes_per_token: float
    bytes_per_pair: float

    def bound(self, num_tokens: int, max_length: int) -> int:
        """Return the bytes that steps of `num_tokens` take at most, in texts of up to `max_length` tokens."""
        longest = min(num_tokens, max_length)
        return int(num_tokens * (self.bytes_per_token + self.bytes_per_pair * longest))

    def most_tokens(self, num_bytes: int, max_length: int) -> int:
        """Return how many tokens a step may have where `num_bytes` are free."""
        return int(num_bytes * _USABLE_SHARE / (self.bytes_per_token + self.bytes_per_pair * max_length))


def measure_step_memory(runner: ModelRunner, tasks: tuple[Task, ...], max_length: int) -> StepMemory:
    """Run a short and a longer text through every task, and read off how the memory of steps grows."""
    short, long = (min(length, max_length) for length in _PROBE_TOKENS)
    peaks = [(_peak_bytes(runner, task, short), _peak_bytes(runner, task, long)) for task in tasks]
    per_pair = max(max(0.0, (b / long - a / short) / (long - short)) if long > short else 0.0 for a, b in peaks)
    per_token = max(max(a / short, b / long) for a, b in peaks)
    return StepMemory(bytes_per_token=per_token * runner.num_workers, bytes_per_pair=per_pair * runner.num_workers)


def check_step_memory(memory: StepMemory, num_tokens: int, max_length: int, free: int) -> None:
    """Raise `CheckpointError` where a step of `num_tokens` does not fit into `free` bytes."""
    needed = memory.bound(num_tokens, max_length)
    if needed > free * _USABLE_SHARE:
        raise CheckpointError(
            f"a step of {num_tokens} tokens takes up to {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: "
            "lower max_batch_tokens or max_length"
        )


def is_out_of_memory(error: Exception) -> bool:
    """Return whether a step failed for want of memory; on a CPU torch has no error class of its own for it."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def free_memory() -> int:
    """Return the bytes that new work may take on this machine: what is free, and what Linux would give back."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pages: int = os.sysconf("SC_PHYS_PAGES")
        return os.sysconf("SC_PAGE_SIZE") * pages


def _peak_bytes(runner: ModelRunner, task: Task, num_tokens: int) -> int:
    """Run one text, whatever the runner is, on this thread: nothing is seen of the others."""
    pieces = made_up_texts(runner, task, length=num_tokens)
    with _LiveBytes() as live:
        ModelRunner.launch(runner, pieces).result()
    peak: int = live.peak
    return peak


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that operations make and that are still alive; `peak` is the most at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._live = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {storage._cdata for storage in _storages((args, kwargs))}
        outputs = func(*args, **(kwargs or {}))
        for storage in _storages(outputs):
            if storage._cdata not in given | self._known:
                self._note(storage)
        return outputs

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self._live += size
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key, size).atexit = False

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._live -= size


def _storages(tree: object) -> Iterator[torch.UntypedStorage]:
    """Find the memory of every tensor in `tree`; oneDNN's packed weights show theirs to nobody."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            yield leaf.untyped_storage()

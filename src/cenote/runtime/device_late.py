"""A device that does everything later than it was asked, on the CPU: what a GPU does, made visible without one.

A buffer that is rewritten before the copy that reads it has run gives wrong numbers here, every time and not once in a
million.
"""

from __future__ import annotations

import random

import torch

from cenote.runtime.device import Event
from cenote.runtime.late_tensor import LateTensor, WorkQueue


class LateEvent:
    """A point in a queue; waiting for it does the work before it."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._position = queue.num_launched

    def wait(self) -> None:
        self._queue.run_to(self._position)

    def passed(self) -> bool:
        return self._queue.num_done >= self._position


class LateDevice:
    """Two queues, as the CUDA device has: copies up and compute on one, copies back on another.

    How much of each is done, and when, is drawn from `seed`. Asking a tensor of this device for a value raises.
    """

    steps_in_flight = 2

    def __init__(self, seed: int = 0) -> None:
        self.torch_device = torch.device("cpu")
        self._random = random.Random(seed)  # noqa: S311 - when work is done, not a secret
        self._chance = 0.1
        self._compute = WorkQueue()
        self._copies_back = WorkQueue()

    @property
    def num_done(self) -> int:
        """How many pieces of work are done."""
        return self._compute.num_done + self._copies_back.num_done

    def stop_time(self) -> None:
        """Do nothing from now on until somebody waits for it."""
        self._chance = 0.0

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype)

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        self._let_time_pass()
        copied = LateTensor(torch.empty_like(host, device="meta"), self._compute)

        def copy() -> None:
            copied.value = host.clone()

        self._compute.launch(copy)
        return copied

    def record(self) -> Event:
        self._let_time_pass()
        return LateEvent(self._compute)

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        assert isinstance(source, LateTensor), "a step's output does not depend on its input"
        self._let_time_pass()
        target = self.host_buffer(source.numel(), source.dtype)
        computed = LateEvent(self._compute)

        def copy() -> None:
            computed.wait()
            target.copy_(source.value)

        self._copies_back.launch(copy)
        return target, LateEvent(self._copies_back)

    def _let_time_pass(self) -> None:
        for queue in (self._compute, self._copies_back):
            if self._random.random() < self._chance:
                queue.run_to(self._random.randint(queue.num_done, queue.num_launched))

"""Steps on a CPU, each on one compute thread: as many at a time as there are threads.

Threads that share every operation wait for each other after every operation, and one that the machine keeps busy
elsewhere holds up all. Steps share nothing but the weights.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Many
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from cenote.errors import CenoteError
from cenote.models.load import LoadedModel
from cenote.pooling.dispatch import DispatchPooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece, Results
from cenote.runtime.runner import InFlight, ModelRunner

INT8_SHARED_TOKENS = 192
"""A shorter text takes longer on all threads than on one in int8, whose operations are many and small."""

StepResults = list[Results | CenoteError]
_Job = tuple[Callable[[], StepResults], Future[StepResults]]


class ThreadedRunner(ModelRunner):
    """A `ModelRunner` that runs `num_threads` steps at a time, each on a thread of its own, in any order."""

    def __init__(
        self,
        model: LoadedModel,
        pooler: DispatchPooler,
        device: CpuDevice,
        num_threads: int,
        least_shared_tokens: int = 1,
    ) -> None:
        super().__init__(model, pooler, device)
        self._least_shared_tokens = least_shared_tokens
        self._runners = [ModelRunner(model, pooler, device) for _ in range(num_threads)]
        self._idle: queue.SimpleQueue[ModelRunner] = queue.SimpleQueue()
        for runner in self._runners:
            self._idle.put(runner)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        _start_threads(self._jobs, num_threads)
        # Not at exit: whoever still waits for a step then would wait for ever.
        weakref.finalize(self, _end, self._jobs, num_threads).atexit = False

    @property
    def num_workers(self) -> int:
        return len(self._runners)

    @property
    def steps_in_flight(self) -> int:
        return len(self._runners)

    @property
    def num_tokens(self) -> int:
        return super().num_tokens + sum(runner.num_tokens for runner in self._runners)

    def launch(self, pieces: Many[Piece]) -> InFlight:
        idle, future = self._idle, Future[StepResults]()
        self._jobs.put((lambda: _run(idle, pieces), future))
        return _Running(future)

    def launch_alone(self, pieces: Many[Piece]) -> InFlight:
        """Run a single text on the calling thread, with all compute threads, unless it has too few tokens for them.

        Several texts are one thread's share of what came together.
        """
        is_shared = len(pieces) == 1 and len(pieces[0]) >= self._least_shared_tokens
        return super().launch(pieces) if is_shared else self.launch(pieces)


@dataclass(frozen=True, slots=True)
class _Running:
    """A step on one of the threads."""

    future: Future[StepResults]

    @property
    def ended(self) -> bool:
        return self.future.done()

    def when_ended(self, callback: Callable[[], None]) -> None:
        self.future.add_done_callback(lambda _: callback())

    def result(self) -> StepResults:
        return self.future.result()


def _run(idle: queue.SimpleQueue[ModelRunner], pieces: Many[Piece]) -> StepResults:
    """Run a step on a runner that no other thread uses meanwhile: it has buffers of its own."""
    runner = idle.get()
    try:
        return runner.launch(pieces).result()
    finally:
        idle.put(runner)


def _start_threads(jobs: queue.SimpleQueue[_Job | None], num_threads: int) -> None:
    """Start the threads that run `jobs`, each of which computes alone.

    torch keeps the number of compute threads for each thread, and the number last set for threads yet to come: that is
    put back. A thread takes that number over when it first asks for it, so it has to ask before it sets its own.
    """
    before = torch.get_num_threads()
    ready = threading.Barrier(num_threads + 1)
    for _ in range(num_threads):
        threading.Thread(target=_work, args=(jobs, ready), name="cenote-step", daemon=True).start()
    ready.wait()
    torch.set_num_threads(before)


def _work(jobs: queue.SimpleQueue[_Job | None], ready: threading.Barrier) -> None:
    """Run jobs until None comes."""
    torch.get_num_threads()
    torch.set_num_threads(1)
    ready.wait()
    while (job := jobs.get()) is not None:
        run, future = job
        try:
            future.set_result(run())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            future.set_exception(error)
        del job, run, future  # may hold a model, and the thread may wait for long now


def _end(jobs: queue.SimpleQueue[_Job | None], num_threads: int) -> None:
    for _ in range(num_threads):
        jobs.put(None)

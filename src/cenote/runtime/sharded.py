"""A step on a CPU in shards, one for each compute thread, which meet only at the end of the step.

Threads that share every operation wait for each other after every operation, and one that the machine keeps busy
elsewhere holds up all. Shards share nothing but the weights.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence as Many
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from cenote.errors import CenoteError
from cenote.models.load import LoadedModel
from cenote.pooling.dispatch import DispatchPooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece, Results
from cenote.runtime.runner import InFlight, ModelRunner

MIN_SHARD_TOKENS = 16
"""A smaller shard costs more in Python than it saves."""
MAX_IMBALANCE = 1.5
"""Largest shard, in equal shares of the step, at which shards still beat sharing every operation."""

ShardResults = list[Results | CenoteError]
_Job = tuple[Callable[[], ShardResults], Future[ShardResults]]


class ShardedRunner(ModelRunner):
    """A `ModelRunner` that runs a step in equal shards on `num_threads` threads of its own.

    A step that cannot be cut evenly, such as one long text, runs on the calling thread, with all compute threads.
    """

    def __init__(self, model: LoadedModel, pooler: DispatchPooler, device: CpuDevice, num_threads: int) -> None:
        super().__init__(model, pooler, device)
        self._runners = [ModelRunner(model, pooler, device) for _ in range(num_threads)]
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        _start_threads(self._jobs, num_threads)
        # Not at exit: whoever still waits for a step then would wait for ever.
        weakref.finalize(self, _end, self._jobs, num_threads).atexit = False

    def launch(self, pieces: Many[Piece]) -> InFlight:
        shards = cut_evenly(pieces, len(self._runners))
        if shards is None:
            return super().launch(pieces)
        futures = [self._start(runner, shard) for runner, shard in zip(self._runners, shards, strict=True)]
        wait(futures)
        for runner in self._runners:
            self.num_tokens += runner.num_tokens
            runner.num_tokens = 0
        return _Done([result for future in futures for result in future.result()])

    def _start(self, runner: ModelRunner, shard: Many[Piece]) -> Future[ShardResults]:
        future: Future[ShardResults] = Future()
        self._jobs.put((lambda: runner.launch(shard).result(), future))
        return future


@dataclass(frozen=True, slots=True)
class _Done:
    """A step whose shards are finished."""

    results: ShardResults

    def result(self) -> ShardResults:
        return self.results


def cut_evenly(pieces: Many[Piece], num_shards: int) -> list[Many[Piece]] | None:
    """Cut `pieces`, in their order, into shards of about equally many tokens; None where they are too few or uneven."""
    ends_np = np.cumsum([len(piece) for piece in pieces])
    share = ends_np[-1] / num_shards
    if share < MIN_SHARD_TOKENS or len(pieces) < num_shards:
        return None
    cuts_np = 1 + np.abs(ends_np[:, None] - share * np.arange(1, num_shards)).argmin(axis=0)
    bounds = [0, *cuts_np.tolist(), len(pieces)]
    sizes_np = np.diff(ends_np[np.array(bounds[1:]) - 1], prepend=0)
    if sizes_np.min() == 0 or sizes_np.max() > MAX_IMBALANCE * share:
        return None
    return [pieces[start:stop] for start, stop in pairwise(bounds)]


def _start_threads(jobs: queue.SimpleQueue[_Job | None], num_threads: int) -> None:
    """Start the threads that run `jobs`, each of which computes alone.

    torch keeps the number of compute threads for each thread, and the number last set for threads yet to come: that is
    put back. A thread takes that number over when it first asks for it, so it has to ask before it sets its own.
    """
    before = torch.get_num_threads()
    ready = threading.Barrier(num_threads + 1)
    for _ in range(num_threads):
        threading.Thread(target=_work, args=(jobs, ready), name="cenote-shard", daemon=True).start()
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

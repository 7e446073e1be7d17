"""What waits in the queue: requests of several sequences, and what each sequence is to give."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cenote.outputs import SparseVector
from cenote.params import Task, TaskParams

IntArray = npt.NDArray[np.int64]
Result = npt.NDArray[np.generic] | SparseVector
Results = dict[Task, Result]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """One tokenised text and what it is pooled into.

    `num_keys` counts the leading rows that others may attend to: all of them but for query expansion.
    """

    token_ids: IntArray
    params: TaskParams
    token_type_ids: IntArray | None = None
    num_keys: int

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The results of a request in the order of its sequences, and when what happened (seconds, monotonic)."""

    results: list[Results]
    queue_seconds: float
    inference_seconds: float


@dataclass(eq=False, kw_only=True)
class Request:
    """One caller's sequences on their way through the queue; `future` gets the `Answer` or the error.

    `order` lists the sequences by length, so that a step holds texts of like length; `next` is how many of them have
    been scheduled. `virtual_time` and `last_step` are the scheduler's: the tokens served so far, counted from those of
    its rivals, and the number of the step that last served it.
    """

    sequences: list[Sequence]
    future: Future[Answer] = field(default_factory=Future)
    order: list[int] = field(init=False)
    next: int = 0
    virtual_time: float = 0.0
    last_step: int = 0
    results: list[Results | None] = field(init=False)
    num_done: int = 0
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None

    def __post_init__(self) -> None:
        self.order = sorted(range(len(self.sequences)), key=lambda i: len(self.sequences[i]))
        self.results = [None] * len(self.sequences)

    @property
    def num_waiting(self) -> int:
        return len(self.sequences) - self.next

    def next_length(self, ahead: int) -> int:
        """Return the tokens of the sequence that comes `ahead` places after the next one."""
        return len(self.sequences[self.order[self.next + ahead]])

    def finish(self, position: int, results: Results) -> None:
        """Note the results of one sequence; the last one completes the future."""
        self.results[position] = results
        self.num_done += 1
        if self.num_done == len(self.sequences) and not self.future.done():
            now = time.monotonic()
            started = self.started or now
            self._complete(
                Answer(
                    results=[result for result in self.results if result is not None],
                    queue_seconds=started - self.submitted,
                    inference_seconds=now - started,
                )
            )

    def fail(self, error: BaseException) -> None:
        """Fail the future, unless the caller left or it has its answer."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _complete(self, answer: Answer) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(answer)

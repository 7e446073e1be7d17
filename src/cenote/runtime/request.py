"""What waits in the queue: requests of several sequences, and what each sequence is to give."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cenote.models.context import KeyValueCache
from cenote.outputs import SparseVector
from cenote.params import Task, TaskParams
from cenote.pooling.metadata import PoolingStates

IntArray = npt.NDArray[np.int64]
Result = npt.NDArray[np.generic] | SparseVector
Results = dict[Task, Result]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """One tokenised text and what it is pooled into.

    `num_keys` counts the leading rows that others may attend to: all of them but for query expansion. Only a
    `chunkable` sequence may be run in several steps, and only one that `shares_prefix` may leave rows to a neighbour.
    """

    token_ids: IntArray
    params: TaskParams
    token_type_ids: IntArray | None = None
    num_keys: int
    chunkable: bool = False
    shares_prefix: bool = False

    def __len__(self) -> int:
        return len(self.token_ids)


class SequenceState:
    """What a sequence that runs in chunks keeps between its steps: keys and values, and hidden states to be pooled."""

    def __init__(self, num_tokens: int) -> None:
        self.cache = KeyValueCache(num_tokens)
        self.pooling = PoolingStates()


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Rows `start` to `stop` of a sequence: what a step runs of it.

    Only a chunk has a `state`. Where there is a `leader`, the rows before `start` are those of that piece of the step.
    """

    sequence: Sequence
    start: int = 0
    stop: int
    state: SequenceState | None = None
    leader: int | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        return self.stop == len(self.sequence)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The results of a request in the order of its sequences, and when what happened (seconds, monotonic)."""

    results: list[Results]
    queue_seconds: float
    inference_seconds: float

    def arrays(self, task: Task) -> list[npt.NDArray[Any]]:
        """Return each sequence's array of a task that gives arrays."""
        return [result for each in self.results if isinstance(result := each[task], np.ndarray)]

    def sparse(self, task: Task) -> list[SparseVector]:
        """Return each sequence's vector of a task that gives sparse ones."""
        return [result for each in self.results if isinstance(result := each[task], SparseVector)]


@dataclass(eq=False, kw_only=True)
class Request:
    """One caller's sequences on their way through the queue; `future` gets the `Answer` or the error.

    Where several of the caller's texts are alike, one sequence stands for them: `places` has each text's, by default
    its own.
    `order` lists the sequences by length, so that a step holds texts of like length; `next` is how many of them have
    been scheduled whole, `progress` how many tokens of the next one, `num_tokens_left` how many of the `num_tokens`
    have not been scheduled. `states` are those of chunked sequences that are not finished. `last_step` is the
    scheduler's: the number of the step that last served the request, or of the last one before it came.
    """

    sequences: list[Sequence]
    places: list[int] = field(default_factory=list)
    future: Future[Answer] = field(default_factory=Future)
    order: list[int] = field(init=False)
    next: int = 0
    progress: int = 0
    num_tokens: int = field(init=False)
    num_tokens_left: int = field(init=False)
    states: dict[int, SequenceState] = field(default_factory=dict)
    last_step: int = 0
    results: list[Results | None] = field(init=False)
    num_done: int = 0
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None

    def __post_init__(self) -> None:
        self.order = sorted(range(len(self.sequences)), key=lambda i: len(self.sequences[i]))
        self.results = [None] * len(self.sequences)
        self.places = self.places or list(range(len(self.sequences)))
        self.num_tokens = self.num_tokens_left = sum(map(len, self.sequences))

    @property
    def num_waiting(self) -> int:
        return len(self.sequences) - self.next

    def peek(self, ahead: int) -> tuple[int, int]:
        """Return the position of the sequence `ahead` places after the next one, and its first row not yet run."""
        return self.order[self.next + ahead], 0 if ahead else self.progress

    def piece(self, position: int, start: int, stop: int) -> Piece:
        """Return a piece of a sequence, with its state where it is a chunk."""
        sequence = self.sequences[position]
        if stop - start == len(sequence):
            return Piece(sequence=sequence, stop=stop)
        state = self.states.setdefault(position, SequenceState(len(sequence)))
        return Piece(sequence=sequence, start=start, stop=stop, state=state)

    def note(self, position: int, results: Results) -> bool:
        """Note the results of one sequence; return whether these were the last."""
        self.states.pop(position, None)
        self.results[position] = results
        self.num_done += 1
        return self.num_done == len(self.sequences)

    def finish(self) -> None:
        """Complete the future with the results of all sequences, unless the caller left or it has an error."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        now = time.monotonic()
        started = self.started or now
        self.future.set_result(
            Answer(
                results=self._spread(),
                queue_seconds=started - self.submitted,
                inference_seconds=now - started,
            )
        )

    def _spread(self) -> list[Results]:
        """Return each text's results; a caller may write to his arrays, so no two texts have the same ones."""
        left = list(self.results)
        spread: list[Results] = []
        for place in self.places:
            own, left[place] = left[place], None
            results = own if own is not None else _copied(self.results[place] or {})
            spread.append(results)
        return spread

    def fail(self, error: BaseException) -> None:
        """Fail the future, unless the caller left or it has its answer, and free what chunks have kept."""
        self.states.clear()
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def _copied(results: Results) -> Results:
    return {task: _copy(result) for task, result in results.items()}


def _copy(result: Result) -> Result:
    if isinstance(result, np.ndarray):
        return result.copy()
    return replace(result, indices=result.indices.copy(), values=result.values.copy())

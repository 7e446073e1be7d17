"""What a model has to do and has done: figures for whoever watches it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

STEP_SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STEP_FILL_BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """How many values were at most each of `bounds`, and over the one before it; `counts` has one more for the rest."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    """the sum of all values"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """One moment of one model: what waits for it now, and what it has done since it was loaded.

    `queued_*` count what has not been launched, `unanswered_requests` also what is on its way. The fill of a step is
    its tokens in parts of `step_tokens`; a longer text alone, or many brief requests, give more than 1.
    """

    queued_requests: int
    queued_tokens: int
    unanswered_requests: int
    step_tokens: int
    num_tokens: int
    step_seconds: Distribution
    step_fill: Distribution

    @property
    def num_steps(self) -> int:
        return sum(self.step_seconds.counts)


class Histogram:
    """Counts values by bounds; written by one thread, read by any."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    @property
    def total(self) -> float:
        return self._total

    def read(self) -> Distribution:
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), total=self._total)

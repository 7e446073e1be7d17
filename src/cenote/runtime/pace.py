"""How many tokens a step on a CPU should have to take its time, whatever the machine does at the moment."""

from __future__ import annotations

from dataclasses import dataclass, replace

CPU_STEP_SECONDS = 0.1
"""Long enough to be efficient, short enough for others to get their turn; steps that nobody waits for may be longer."""
MIN_STEP_TOKENS = 128
MIN_SHARED_STEP_TOKENS = 256
"""Of a step of `CPU_STEP_SECONDS` that several threads share; a longer one has more in proportion."""
SLOW_STEPS = 2
"""Threads share a model's steps where one alone takes longer than so many steps for the fewest tokens."""
MAX_STEP_TOKENS = 4096
"""A larger step is no faster, and what it works on has to be held."""
BRIEF_STEPS = 2
"""So many steps' tokens one may have where it holds brief requests (see the scheduler), and so many steps' time where
it has all threads.
"""
_WEIGHT = 0.1
"""Of a new measurement; the machine may be busy for a moment."""
_MOST_AT_ONCE = 3.0
"""A measurement that is off by more counts as off by this much."""


@dataclass(kw_only=True)
class Pace:
    """The speed of one worker with a model, in tokens a second: measured at start, then kept up to date.

    It is the time of a token that is averaged: a mean of speeds would hardly see slow steps. `most_tokens` is what a
    step may have at most, by its memory; `least_tokens` is what it needs to be efficient.
    """

    tokens_per_second: float
    least_tokens: int = MIN_STEP_TOKENS
    most_tokens: int = MAX_STEP_TOKENS
    step_seconds: float = CPU_STEP_SECONDS

    @property
    def is_slow(self) -> bool:
        """Whether one worker is too slow for this model: its smallest efficient step takes far too long."""
        return self.least_tokens > SLOW_STEPS * self.step_seconds * self.tokens_per_second

    @property
    def step_tokens(self) -> int:
        """Return the tokens of a step of about `step_seconds`."""
        wanted = max(self.least_tokens, int(self.tokens_per_second * self.step_seconds))
        return min(wanted, self.most_tokens)

    @property
    def brief_tokens(self) -> int:
        """Return the most tokens of a step of brief requests."""
        return min(BRIEF_STEPS * self.step_tokens, self.most_tokens)

    def shared(self, num_workers: int) -> Pace:
        """Return the pace of one worker in the place of several: it has the threads of all."""
        speed = num_workers * self.tokens_per_second
        least = int(MIN_SHARED_STEP_TOKENS * self.step_seconds / CPU_STEP_SECONDS)
        return replace(self, tokens_per_second=speed, least_tokens=max(MIN_STEP_TOKENS, least))

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Note a step; one that was less than half full says little about a full one."""
        if 2 * num_tokens >= self.step_tokens:
            times_slower = self.tokens_per_second * seconds / num_tokens
            times_slower = min(max(times_slower, 1 / _MOST_AT_ONCE), _MOST_AT_ONCE)
            self.tokens_per_second /= 1 + _WEIGHT * (times_slower - 1)

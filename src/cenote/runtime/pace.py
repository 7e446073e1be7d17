"""How many tokens a step on a CPU should have to take its time, whatever the machine does at the moment."""

from __future__ import annotations

from dataclasses import dataclass

CPU_STEP_SECONDS = 0.1
"""Long enough to be efficient, short enough for others to get their turn; steps that nobody waits for may be longer."""
MIN_STEP_TOKENS = 128
MAX_STEP_TOKENS = 16_384
BRIEF_STEPS = 2
"""So many steps' tokens one may have where it holds requests that fit into a step whole."""
_WEIGHT = 0.1
"""Of a new measurement; the machine may be busy for a moment."""
_MOST_AT_ONCE = 3.0
"""A measurement that is off by more counts as off by this much."""


@dataclass(kw_only=True)
class Pace:
    """The speed of one worker with a model, in tokens a second: measured at start, then kept up to date.

    It is the time of a token that is averaged: a mean of speeds would hardly see slow steps. `most_tokens` is what a
    step may have at most, by its memory.
    """

    tokens_per_second: float
    most_tokens: int = MAX_STEP_TOKENS
    step_seconds: float = CPU_STEP_SECONDS

    @property
    def step_tokens(self) -> int:
        """Return the tokens of a step of about `step_seconds`."""
        wanted = max(MIN_STEP_TOKENS, int(self.tokens_per_second * self.step_seconds))
        return min(wanted, self.most_tokens)

    @property
    def brief_tokens(self) -> int:
        """Return the most tokens of a step of brief requests."""
        return min(BRIEF_STEPS * self.step_tokens, self.most_tokens)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Note a step; one that was less than half full says little about a full one."""
        if 2 * num_tokens >= self.step_tokens:
            times_slower = self.tokens_per_second * seconds / num_tokens
            times_slower = min(max(times_slower, 1 / _MOST_AT_ONCE), _MOST_AT_ONCE)
            self.tokens_per_second /= 1 + _WEIGHT * (times_slower - 1)

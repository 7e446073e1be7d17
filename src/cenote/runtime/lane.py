"""One model on the loop: its queue, bounded in tokens, and what was measured of its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from cenote.errors import BusyError, OversizeError
from cenote.runtime.load import STEP_FILL_BOUNDS, STEP_SECONDS_BOUNDS, Histogram, Load
from cenote.runtime.pace import BRIEF_STEPS, MIN_STEP_TOKENS, Pace
from cenote.runtime.request import Request
from cenote.runtime.runner import ModelRunner
from cenote.runtime.scheduler import Take, commit, plan

MAX_RETRY_SECONDS = 600.0
MIN_SHARE_TOKENS = 32
"""A smaller step takes as long: reading the weights is most of its time."""


@dataclass(eq=False, kw_only=True)
class Lane:
    """One model and what waits for it. The loop's lock guards every change of the queue.

    `waiting` are the requests with sequences to schedule, in the order of their arrival, and `queued_tokens` the tokens
    of those, at most `max_queue_tokens`; `unanswered` also holds the requests that are on their way. `held` are those
    with a chunk on its way where steps end in any order: what follows must wait for it. `busy_seconds` is the time of
    the whole device that the model was given, for fairness between models. With a `pace` the size of a step follows the
    speed of the machine. A step of more than `stall_seconds` counts as stuck.
    """

    runner: ModelRunner
    step_tokens: int
    pace: Pace | None = None
    max_queue_tokens: int | None = None
    stall_seconds: float = math.inf
    waiting: dict[Request, None] = field(default_factory=dict)
    queued_tokens: int = 0
    unanswered: set[Request] = field(default_factory=set)
    held: set[Request] = field(default_factory=set)
    busy_seconds: float = 0.0
    num_steps: int = 0
    num_tokens: int = 0
    step_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_SECONDS_BOUNDS))
    step_fill: Histogram = field(default_factory=lambda: Histogram(STEP_FILL_BOUNDS))

    def admit(self, request: Request) -> None:
        """Queue `request`.

        Raises `BusyError` where it does not fit beside what waits, `OversizeError` where it does not fit at all.
        """
        self._check_room(request.num_tokens)
        request.last_step = self.num_steps
        self.waiting[request] = None
        self.unanswered.add(request)
        self.queued_tokens += request.num_tokens

    @property
    def ready(self) -> bool:
        """Whether there is something to launch."""
        return len(self.waiting) > len(self.held)

    def take(self, num_idle: int = 1) -> list[Take]:
        """Choose the next step and take it out of the queue: no more than an equal share for each worker.

        So the last steps of a job are small, and the workers end together. `num_idle` of them do nothing now.
        """
        self.num_steps += 1
        waiting = [request for request in self.waiting if request not in self.held]
        least = MIN_SHARE_TOKENS if num_idle == self.runner.num_workers else MIN_STEP_TOKENS
        enough = max(least, self.queued_tokens / self.runner.num_workers)
        brief_tokens = 0 if self.pace is None else self.pace.brief_tokens
        takes = plan(waiting, self.step_tokens, self.num_steps, enough=enough, brief_tokens=brief_tokens)
        commit(takes, self.num_steps)
        if self.runner.num_workers > 1:
            self.held.update(take.request for take in takes if not take.is_last)
        self.queued_tokens -= sum(take.num_tokens for take in takes)
        for take in takes:
            if not take.request.num_waiting:
                self.waiting.pop(take.request, None)
        return takes

    def is_brief(self, takes: Many[Take]) -> bool:
        """Whether all workers together run a step within the time of `BRIEF_STEPS` of their own."""
        return sum(take.num_tokens for take in takes) <= BRIEF_STEPS * self.step_tokens * self.runner.num_workers

    def forget(self, request: Request) -> None:
        """Take out what is left of a request that was answered, failed or withdrawn."""
        self.unanswered.discard(request)
        self.held.discard(request)
        if request in self.waiting:
            del self.waiting[request]
            self.queued_tokens -= request.num_tokens_left
            request.states.clear()

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Note a step that was run."""
        self.busy_seconds += seconds / self.runner.num_workers
        self.num_tokens += num_tokens
        self.step_seconds.observe(seconds)
        self.step_fill.observe(num_tokens / self.step_tokens)
        if self.pace is not None:
            self.pace.observe(num_tokens, seconds)
            self.step_tokens = self.pace.step_tokens

    def load(self) -> Load:
        """Return what waits and what was done."""
        return Load(
            queued_requests=len(self.waiting),
            queued_tokens=self.queued_tokens,
            unanswered_requests=len(self.unanswered),
            step_tokens=self.step_tokens,
            num_tokens=self.num_tokens,
            step_seconds=self.step_seconds.read(),
            step_fill=self.step_fill.read(),
        )

    def _check_room(self, num_tokens: int) -> None:
        most = self.max_queue_tokens
        if not most:
            return
        if num_tokens > most:
            raise OversizeError(
                f"the request has {num_tokens} tokens, and at most {most} may wait for this model: send fewer texts in "
                "one request, or raise max_queue_tokens"
            )
        over = self.queued_tokens + num_tokens - most
        if over > 0:
            raise BusyError(
                f"the model is busy: {self.queued_tokens} tokens wait for it, and with the {num_tokens} of this "
                f"request it would be more than the {most} of max_queue_tokens; try again later",
                retry_after=self._seconds_for(over),
            )

    def _seconds_for(self, num_tokens: int) -> float:
        """Return about how long the model takes for so many tokens, by what it did so far."""
        if self.pace is not None:
            speed = self.pace.tokens_per_second * self.runner.num_workers
        else:
            seconds = self.step_seconds.total
            speed = self.num_tokens / seconds if seconds else math.inf
        return max(1.0, min(num_tokens / speed, MAX_RETRY_SECONDS))

"""Which sequences run in the next step: a pure function of the queue.

Requests are served by start-time fair queueing: each has a virtual time, the tokens that it was given, and the one that
had least goes first. A newcomer starts level with the least served, and of equally served ones those that need fewer
whole steps lead, so a query does not wait behind bulk jobs, however many they are; queries go in the order of their
arrival. So that a stream of newcomers cannot starve a longer request either, one that got nothing for
`MAX_SKIPPED_STEPS` leads: the first of them, and only in every other step, since many may be due at once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from cenote.runtime.request import Request

MAX_SKIPPED_STEPS = 16
MIN_CHUNK_SHARE = 4
"""Less than this part of a step is not worth a chunk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Take:
    """Rows `start` to `stop` of the sequence at `position` of `request`."""

    request: Request
    position: int
    start: int
    stop: int

    @property
    def num_tokens(self) -> int:
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        """Whether the sequence is then complete."""
        return self.stop == len(self.request.sequences[self.position])


def plan(
    requests: Sequence[Request], step_tokens: int, step: int, *, enough: float = math.inf, brief_tokens: int = 0
) -> list[Take]:
    """Choose what runs in step number `step`: at most `step_tokens` tokens, or one longer sequence alone.

    Requests that fit into a step whole may fill it up to `brief_tokens`, if that is more: where many wait, a longer
    step for all of them ends before several short ones. A step is also full where it is nearest to `enough` tokens, so
    that others have their share.

    `requests` are in the order of their arrival. Nothing is changed; `commit` does that. Of equally served requests
    those that wait for their first turn lead, those that need the fewest whole steps first. A sequence that does not
    fit is cut into chunks where it may be; else it leaves its place to shorter ones of other requests, and its request,
    being the least served, leads the next step.
    """
    due = _due(requests, step)
    heap = [
        (*_turn(request, due, step_tokens), rank, 0) for rank, request in enumerate(requests) if request.num_waiting
    ]
    heapq.heapify(heap)
    takes: list[Take] = []
    used, most = 0, max(step_tokens, brief_tokens)
    while heap and used < most:
        time, _, size, rank, ahead = heapq.heappop(heap)
        request = requests[rank]
        is_brief = request.num_tokens_left <= step_tokens
        take = _take(request, ahead, (most if is_brief else step_tokens) - used, step_tokens)
        if take is None:
            continue
        if takes and used + take.num_tokens / 2 > enough:
            break
        takes.append(take)
        used += take.num_tokens
        if take.num_tokens > step_tokens:
            break
        if take.is_last and ahead + 1 < request.num_waiting:
            served = max(time, request.virtual_time) + take.num_tokens
            heapq.heappush(heap, (served, True, size, rank, ahead + 1))
    return takes


def _take(request: Request, ahead: int, left: int, step_tokens: int) -> Take | None:
    """Return what of the sequence fits into the `left` tokens of a step, `None` where nothing does."""
    position, start = request.peek(ahead)
    sequence = request.sequences[position]
    stop = len(sequence)
    if stop - start > left:
        if sequence.chunkable and left * MIN_CHUNK_SHARE >= step_tokens:
            stop = start + left
        elif left < step_tokens:
            return None
    return Take(request=request, position=position, start=start, stop=stop)


def commit(takes: Sequence[Take], step: int) -> None:
    """Note on the requests that `takes` are on their way in step number `step`."""
    for take in takes:
        request = take.request
        request.last_step = step
        request.virtual_time += take.num_tokens
        request.num_tokens_left -= take.num_tokens
        request.next += take.is_last
        request.progress = 0 if take.is_last else take.stop


def admit(request: Request, requests: Sequence[Request], step: int) -> None:
    """Give a newcomer the virtual time of the least served of `requests`; `step` is the number of the last step."""
    request.last_step = step
    request.virtual_time = min((other.virtual_time for other in requests), default=0.0)


def _due(requests: Sequence[Request], step: int) -> Request | None:
    """Return the first request that was passed over too often, if it is its turn to lead."""
    if step % 2:
        return None
    return next((request for request in requests if step - request.last_step > MAX_SKIPPED_STEPS), None)


def _turn(request: Request, due: Request | None, step_tokens: int) -> tuple[float, bool, int]:
    time = -1.0 if request is due else request.virtual_time
    return time, request.next > 0, request.num_tokens_left // step_tokens

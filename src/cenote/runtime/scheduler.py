"""Which sequences run in the next step: a pure function of the queue.

Requests are served by start-time fair queueing: each has a virtual time, the tokens that it was given, and the one that
had least goes first. A newcomer starts level with the least served, so a short query does not wait behind a bulk job.
So that a stream of newcomers cannot starve a longer request either, one that got nothing for `MAX_SKIPPED_STEPS` leads.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from cenote.runtime.request import Request

MAX_SKIPPED_STEPS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Take:
    """The next `num_seqs` sequences of `request`, `num_tokens` in all."""

    request: Request
    num_seqs: int
    num_tokens: int


def plan(requests: Sequence[Request], step_tokens: int, step: int) -> list[Take]:
    """Choose what runs in step number `step`: at most `step_tokens` tokens, or one longer sequence alone.

    `requests` are in the order of their arrival. Nothing is changed; `commit` does that. Of equally served requests
    those that wait for their first turn lead. A sequence that does not fit leaves its place to shorter ones of other
    requests, and its request, being the least served, leads the next step.
    """
    heap = [
        (*_turn(request, step), rank, 0, 0)
        for rank, request in enumerate(requests)
        if request.num_waiting
    ]
    heapq.heapify(heap)
    taken: dict[int, tuple[int, int]] = {}
    left = step_tokens
    while heap and left > 0:
        time, _, rank, num_seqs, num_tokens = heapq.heappop(heap)
        request = requests[rank]
        length = request.next_length(num_seqs)
        if length > left and taken:
            continue
        num_seqs, num_tokens, left = num_seqs + 1, num_tokens + length, left - length
        taken[rank] = (num_seqs, num_tokens)
        if num_seqs < request.num_waiting:
            served = max(time, request.virtual_time) + length
            heapq.heappush(heap, (served, True, rank, num_seqs, num_tokens))
    return [
        Take(request=requests[rank], num_seqs=num_seqs, num_tokens=num_tokens)
        for rank, (num_seqs, num_tokens) in taken.items()
    ]


def commit(takes: Sequence[Take], step: int) -> None:
    """Note on the requests that `takes` are on their way in step number `step`."""
    for take in takes:
        take.request.last_step = step
        take.request.next += take.num_seqs
        take.request.virtual_time += take.num_tokens


def admit(request: Request, requests: Sequence[Request], step: int) -> None:
    """Give a newcomer the virtual time of the least served of `requests`; `step` is the number of the last step."""
    request.last_step = step
    request.virtual_time = min((other.virtual_time for other in requests), default=0.0)


def _turn(request: Request, step: int) -> tuple[float, bool]:
    overdue = step - request.last_step > MAX_SKIPPED_STEPS
    return (-1.0, False) if overdue else (request.virtual_time, request.next > 0)

"""Which sequences run in the next step: a pure function of the queue.

Requests are served by start-time fair queueing: each has a virtual time, the tokens that it was given, and the one that
had least goes first. A newcomer starts level with the least served, so a short query does not wait behind a bulk job,
and since virtual time only grows no request waits for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from cenote.runtime.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Take:
    """The next `num_seqs` sequences of `request`, `num_tokens` in all."""

    request: Request
    num_seqs: int
    num_tokens: int


def plan(requests: Sequence[Request], step_tokens: int) -> list[Take]:
    """Choose what runs next: at most `step_tokens` tokens, or one longer sequence alone.

    Nothing is changed; `commit` does that. A sequence that does not fit leaves its place to shorter ones of other
    requests, and its request, being the least served, leads the next step.
    """
    heap = [(request.virtual_time, rank, 0, 0) for rank, request in enumerate(requests) if request.num_waiting]
    heapq.heapify(heap)
    taken: dict[int, tuple[int, int]] = {}
    left = step_tokens
    while heap and left > 0:
        time, rank, num_seqs, num_tokens = heapq.heappop(heap)
        request = requests[rank]
        length = request.next_length(num_seqs)
        if length > left and taken:
            continue
        num_seqs, num_tokens, left = num_seqs + 1, num_tokens + length, left - length
        taken[rank] = (num_seqs, num_tokens)
        if num_seqs < request.num_waiting:
            heapq.heappush(heap, (time + length, rank, num_seqs, num_tokens))
    return [
        Take(request=requests[rank], num_seqs=num_seqs, num_tokens=num_tokens)
        for rank, (num_seqs, num_tokens) in taken.items()
    ]


def commit(takes: Sequence[Take]) -> None:
    """Note on the requests that `takes` are on their way."""
    for take in takes:
        take.request.next += take.num_seqs
        take.request.virtual_time += take.num_tokens


def admit(request: Request, requests: Sequence[Request]) -> None:
    """Give a newcomer the virtual time of the least served of `requests`."""
    request.virtual_time = min((other.virtual_time for other in requests), default=0.0)

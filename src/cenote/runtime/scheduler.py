"""Which sequences run in the next step: a pure function of the queue.

Brief requests go first, in the order of their arrival: one text that fits into a step, or several that take a small
part of one. So a query does not wait behind bulk jobs, however many they are. Of bulk jobs the one with the fewest
tokens left, counted in powers of two, leads in half of the steps, so that a small one does not wait for large ones, and
the oldest in the other half, so that small ones cannot starve it. Jobs of like size thus run one after another, where
equal shares would let them all end with the last. So that queries cannot starve bulk jobs, the one whose turn it is
goes before them if it got nothing for some steps: for fewer, the more jobs wait, but only in every other step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cenote.runtime.request import Request

MAX_SKIPPED_STEPS = 16
"""A bulk job that waits alone goes before queries after so many; of several each after its part of them."""
BRIEF_SHARE = 8
"""Several texts that take at most this part of a step are as good as a query."""
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

    Brief requests may fill it up to `brief_tokens`, if that is more: where many wait, a longer step for all of them
    ends before several short ones. A step is also full where it is nearest to `enough` tokens, so that others have
    their share.

    `requests` are in the order of their arrival. Nothing is changed; `commit` does that. A sequence that does not fit
    is cut into chunks where it may be; else it leaves its place to shorter ones of other requests.
    """
    takes: list[Take] = []
    used, most = 0, max(step_tokens, brief_tokens)
    for request in _in_turn(requests, step_tokens, step):
        room = most if _is_brief(request, step_tokens) else step_tokens
        for ahead in range(request.num_waiting):
            take = _take(request, ahead, room - used, step_tokens)
            if take is None:
                break
            if takes and used + take.num_tokens / 2 > enough:
                return takes
            takes.append(take)
            used += take.num_tokens
            if used >= most or take.num_tokens > step_tokens:
                return takes
            if not take.is_last:
                break
    return takes


def _in_turn(requests: Sequence[Request], step_tokens: int, step: int) -> list[Request]:
    def steps_left(request: Request) -> int:
        return (request.num_tokens_left // step_tokens).bit_length()

    brief = [request for request in requests if _is_brief(request, step_tokens)]
    bulk = [request for request in requests if not _is_brief(request, step_tokens)]
    if not bulk:
        return brief
    if step % 4 < 2:  # in two steps of four, so that each leads in an even one, in which it may go before queries
        oldest = bulk.pop(0)
        bulk = [oldest, *sorted(bulk, key=steps_left)]
    else:
        bulk.sort(key=steps_left)
    if step % 2 == 0 and (step - bulk[0].last_step) * len(bulk) > MAX_SKIPPED_STEPS:
        return [bulk[0], *brief, *bulk[1:]]
    return brief + bulk


def _is_brief(request: Request, step_tokens: int) -> bool:
    share = 1 if len(request.sequences) == 1 else BRIEF_SHARE
    return request.num_tokens * share <= step_tokens


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
        request.num_tokens_left -= take.num_tokens
        request.next += take.is_last
        request.progress = 0 if take.is_last else take.stop

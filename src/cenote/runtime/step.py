"""One step on its way: which part of it is whose, and what becomes of it where it fails."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.errors import CenoteError, DeviceMemoryError, EngineError
from cenote.runtime.lane import Lane
from cenote.runtime.memory import is_out_of_memory
from cenote.runtime.request import Piece, Request
from cenote.runtime.runner import InFlight
from cenote.runtime.scheduler import Take


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One piece of a step: of which request it is, and of which of its sequences."""

    request: Request
    position: int
    piece: Piece


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A launched step; `launched` is when (seconds, monotonic), `number` tells it from others."""

    lane: Lane
    parts: list[Part]
    in_flight: InFlight
    launched: float
    number: int


def part_of(take: Take) -> Part:
    """Return what was taken from a request as a part of a step."""
    piece = take.request.piece(take.position, take.start, take.stop)
    return Part(request=take.request, position=take.position, piece=piece)


def smaller_steps(parts: list[Part], error: Exception) -> list[list[Part]] | None:
    """Return the parts to try again, or None where one request is found to be at fault."""
    by_request: dict[int, list[Part]] = {}
    for part in parts:
        by_request.setdefault(id(part.request), []).append(part)
    if len(by_request) > 1:
        return list(by_request.values())
    if is_out_of_memory(error) and len(parts) > 1:
        middle = len(parts) // 2
        return [parts[:middle], parts[middle:]]
    return None


def explain(error: Exception) -> CenoteError:
    """Return what the request at fault is told."""
    if isinstance(error, CenoteError):
        return error
    if is_out_of_memory(error):
        return DeviceMemoryError(
            "the device ran out of memory for this request: send shorter texts or lower max_length"
        )
    failure = EngineError(f"the model failed on this request: {error}")
    failure.__cause__ = error
    return failure

"""The one thread that launches work: for every model of the process, since they share one pool of compute threads.

A step that raises is run again request by request, so that only the request at fault fails. If the loop itself dies,
everything that waits fails at once and `healthy` turns false.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from cenote.errors import CenoteError, DeviceMemoryError, EngineClosedError, EngineError
from cenote.runtime.pace import Pace
from cenote.runtime.request import Piece, Request
from cenote.runtime.runner import InFlight, ModelRunner, batch_order
from cenote.runtime.scheduler import Take, admit, commit, plan

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Lane:
    """One model's queue: `requests` still have sequences to schedule, `unanswered` also holds those on their way.

    `busy_seconds` is the device time that the model was given, for fairness between models. With a `pace` the size of
    a step follows the speed of the machine.
    """

    runner: ModelRunner
    step_tokens: int
    pace: Pace | None = None
    requests: list[Request] = field(default_factory=list)
    unanswered: set[Request] = field(default_factory=set)
    busy_seconds: float = 0.0
    num_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One piece of a step: of which request it is, and of which of its sequences."""

    request: Request
    position: int
    piece: Piece


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    lane: Lane
    parts: list[_Part]
    in_flight: InFlight
    launched: float


class Loop:
    """Owns the thread. Requests and calls come in from any thread; answers leave through futures."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._calls: deque[tuple[Callable[[], None], Future[object]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._death: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="cenote-loop", daemon=True)
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether the loop runs and takes work."""
        return self._death is None and self._thread.is_alive() and not self._closing

    def add(self, lane: Lane) -> None:
        """Serve one more model."""
        with self._wake:
            lane.busy_seconds = min((other.busy_seconds for other in self._lanes), default=0.0)
            self._lanes.append(lane)

    def remove(self, lane: Lane) -> None:
        """Stop serving a model; what waits for it fails."""
        with self._wake:
            self._lanes.remove(lane)
            lane.requests = []
        _fail_all(lane, EngineClosedError("the model was unloaded"))

    def submit(self, lane: Lane, request: Request) -> None:
        """Queue `request`; its future gets the answer."""
        with self._wake:
            self._check_open()
            admit(request, lane.requests, lane.num_steps)
            lane.requests.append(request)
            lane.unanswered.add(request)
            self._wake.notify()
        request.future.add_done_callback(lambda _: lane.unanswered.discard(request))

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the loop's thread and return what it returns: loading and warming up happen there."""
        future: Future[T] = Future()

        def run() -> None:
            future.set_result(function())

        with self._wake:
            self._check_open()
            self._calls.append((run, future))  # type: ignore[arg-type]
            self._wake.notify()
        return future.result()

    def close(self) -> None:
        """Refuse new work, finish what is queued, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if self._death is not None:
            raise EngineClosedError(f"the engine's loop died: {self._death!r}") from self._death
        if self._closing:
            raise EngineClosedError("the engine is closed")

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread must reach those who wait for it
            self._die(error)

    def _serve(self) -> None:
        flying: deque[_Step] = deque()
        while True:
            lane = self._next_lane(wait=not flying)
            if lane is None and not flying:
                return
            step = self._launch(lane) if lane is not None else None
            if step is not None:
                flying.append(step)
            if flying and (step is None or len(flying) >= step.lane.runner.device.steps_in_flight):
                self._finish(flying.popleft())

    def _next_lane(self, *, wait: bool) -> Lane | None:
        """Return the lane with work that was served least; None when there is nothing to launch now."""
        with self._wake:
            while True:
                self._run_calls()
                for lane in self._lanes:
                    lane.requests = [request for request in lane.requests if not _left(request)]
                ready = [lane for lane in self._lanes if lane.requests]
                if ready:
                    return min(ready, key=lambda lane: lane.busy_seconds)
                if self._closing or not wait:
                    return None
                self._level()
                self._wake.wait()

    def _level(self) -> None:
        """Forget past service when all lanes are idle."""
        for lane in self._lanes:
            lane.busy_seconds = 0.0

    def _run_calls(self) -> None:
        while self._calls:
            run, future = self._calls.popleft()
            self._wake.release()
            try:
                run()
            except Exception as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)
            finally:
                self._wake.acquire()

    def _launch(self, lane: Lane) -> _Step | None:
        parts = self._take(lane)
        if not parts:
            return None
        started = time.monotonic()
        for part in parts:
            part.request.started = part.request.started or started
        try:
            in_flight = lane.runner.launch([part.piece for part in parts])
        except Exception as error:  # noqa: BLE001 - the boundary of the loop
            self._isolate(lane, parts, error)
            return None
        return _Step(lane=lane, parts=parts, in_flight=in_flight, launched=started)

    def _take(self, lane: Lane) -> list[_Part]:
        with self._wake:
            lane.num_steps += 1
            takes = plan(lane.requests, lane.step_tokens, lane.num_steps)
            parts = [_part(take) for take in takes]
            commit(takes, lane.num_steps)
            lane.requests = [request for request in lane.requests if request.num_waiting]
        return sorted(parts, key=lambda part: batch_order(part.piece))

    def _finish(self, step: _Step) -> None:
        try:
            results = step.in_flight.result()
        except Exception as error:  # noqa: BLE001 - the boundary of the loop
            self._isolate(step.lane, step.parts, error)
            return
        seconds = time.monotonic() - step.launched
        step.lane.busy_seconds += seconds
        if step.lane.pace is not None:
            step.lane.pace.observe(sum(len(part.piece) for part in step.parts), seconds)
            step.lane.step_tokens = step.lane.pace.step_tokens
        for part, result in zip(step.parts, results, strict=True):
            if isinstance(result, CenoteError):
                self._drop(step.lane, part.request, result)
            elif part.piece.is_last:
                part.request.finish(part.position, result)

    def _isolate(self, lane: Lane, parts: list[_Part], error: Exception) -> None:
        """Run a failed step again in smaller parts, down to the request, or the sequence, that is at fault."""
        smaller = _split(parts, error)
        if smaller is None:
            self._drop(lane, parts[0].request, _explain(error))
            return
        for few in smaller:
            if few[0].request.future.done():
                continue
            try:
                in_flight = lane.runner.launch([part.piece for part in few])
            except Exception as again:  # noqa: BLE001 - the boundary of the loop
                self._isolate(lane, few, again)
                continue
            self._finish(_Step(lane=lane, parts=few, in_flight=in_flight, launched=time.monotonic()))

    def _drop(self, lane: Lane, request: Request, error: CenoteError) -> None:
        request.fail(error)
        with self._wake:
            lane.requests = [other for other in lane.requests if other is not request]

    def _die(self, error: BaseException) -> None:
        with self._wake:
            self._death = error
            calls, self._calls = self._calls, deque()
        dead = EngineClosedError(f"the engine's loop died: {error!r}")
        for lane in self._lanes:
            _fail_all(lane, dead)
        for _, future in calls:
            future.set_exception(dead)


def _left(request: Request) -> bool:
    """Return whether the caller is gone; what its chunks have kept is freed then."""
    if not request.future.cancelled():
        return False
    request.states.clear()
    return True


def _part(take: Take) -> _Part:
    piece = take.request.piece(take.position, take.start, take.stop)
    return _Part(request=take.request, position=take.position, piece=piece)


def _fail_all(lane: Lane, error: CenoteError) -> None:
    for request in list(lane.unanswered):
        request.fail(error)


def _split(parts: list[_Part], error: Exception) -> list[list[_Part]] | None:
    """Return the parts to try again, or None where one request is found to be at fault."""
    by_request: dict[int, list[_Part]] = {}
    for part in parts:
        by_request.setdefault(id(part.request), []).append(part)
    if len(by_request) > 1:
        return list(by_request.values())
    if isinstance(error, torch.OutOfMemoryError) and len(parts) > 1:
        middle = len(parts) // 2
        return [parts[:middle], parts[middle:]]
    return None


def _explain(error: Exception) -> CenoteError:
    if isinstance(error, CenoteError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return DeviceMemoryError(
            "the device ran out of memory for this request: send shorter texts or lower max_length"
        )
    failure = EngineError(f"the model failed on this request: {error}")
    failure.__cause__ = error
    return failure

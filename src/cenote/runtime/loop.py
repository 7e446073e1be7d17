"""The one thread that launches work: for every model of the process, since they share one pool of compute threads.

A step that raises is run again request by request, so that only the request at fault fails. If the loop itself dies,
everything that waits fails at once and `healthy` turns false; it also does while a step is stuck. Futures are completed
on this thread only, so that no two threads complete the same one.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from cenote.errors import CenoteError, EngineClosedError
from cenote.runtime.lane import Lane
from cenote.runtime.load import Load
from cenote.runtime.request import Answer, Request
from cenote.runtime.runner import batch_order
from cenote.runtime.step import Part, Step, explain, part_of, smaller_steps

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Loop:
    """Owns the thread. Requests and calls come in from any thread; answers leave through futures."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._calls: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._death: BaseException | None = None
        self._flying: deque[Step] = deque()
        self._busy: dict[int, tuple[Lane, float]] = {}
        """the steps that were begun and are not finished, and since when"""
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name="cenote-loop", daemon=True)
        self._thread.start()
        _loops.add(self)

    @property
    def healthy(self) -> bool:
        """Whether the loop runs, gets on and takes work."""
        return self._death is None and self._thread.is_alive() and not self._closing and not self.stalled

    @property
    def stalled(self) -> bool:
        """Whether a step takes longer than its model allows: the device is stuck."""
        now = time.monotonic()
        return any(now - begun > lane.stall_seconds for lane, begun in tuple(self._busy.values()))

    def add(self, lane: Lane) -> None:
        """Serve one more model."""
        with self._wake:
            self._lanes.append(lane)

    def remove(self, lane: Lane) -> Future[None]:
        """Stop serving a model, after the step that runs; what waits for it fails. The future says when it is done."""

        def take_out() -> None:
            with self._wake:
                if lane in self._lanes:
                    self._lanes.remove(lane)
            self._fail_all(lane, EngineClosedError("the model was unloaded"))

        return self._post(take_out)

    def submit(self, lane: Lane, request: Request) -> None:
        """Queue `request`; its future gets the answer. Raises as `Lane.admit` does, or `EngineClosedError`."""
        with self._wake:
            self._check_open()
            if lane not in self._lanes:
                raise EngineClosedError("the model was unloaded")
            if not lane.unanswered:
                self._level(lane)
            lane.admit(request)
            self._wake.notify()
        # Weakly, or the request and its future would hold each other, and all token ids, until a collection.
        request.future.add_done_callback(partial(self._withdraw, lane, weakref.ref(request)))

    def load(self, lane: Lane) -> Load:
        """Return what waits for a model and what it has done."""
        with self._wake:
            return lane.load()

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the loop's thread, while no step runs, and return its result: models warm up there."""
        results: list[T] = []
        self._post(lambda: results.append(function())).result()
        return results[0]

    def stop(self) -> None:
        """Refuse new work, and end the thread once what is queued is finished. Nothing is waited for here."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def close(self) -> None:
        """Stop, and wait for the end of the thread. A device that is stuck is not waited for."""
        self.stop()
        while self._thread is not threading.current_thread() and self._thread.is_alive() and not self.stalled:
            self._thread.join(timeout=1)

    def _post(self, function: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        with self._wake:
            self._check_open()
            self._calls.append((function, future))
            self._wake.notify()
        return future

    def _check_open(self) -> None:
        if self._death is not None:
            raise _died(self._death)
        if self._closing:
            raise EngineClosedError("the engine is closed")
        if self.stalled:
            raise EngineClosedError("the device does not answer: a step takes longer than stall_seconds")

    def _level(self, lane: Lane) -> None:
        """Let a model that was idle start level with the least served of the busy ones: rest earns no claims."""
        busy = [other.busy_seconds for other in self._lanes if other.unanswered]
        if busy:
            lane.busy_seconds = max(lane.busy_seconds, min(busy))
        else:
            for each in self._lanes:
                each.busy_seconds = 0.0

    def _fail(self, lane: Lane, request: Request, error: CenoteError) -> None:
        self._forget(lane, request)
        request.fail(error)

    def _fail_all(self, lane: Lane, error: CenoteError) -> None:
        with self._wake:
            requests = list(lane.unanswered)
        for request in requests:
            self._fail(lane, request, error)

    def _withdraw(self, lane: Lane, request: weakref.ref[Request], _: Future[Answer]) -> None:
        held = request()
        if held is not None:
            self._forget(lane, held)

    def _forget(self, lane: Lane, request: Request) -> None:
        with self._wake:
            lane.forget(request)

    def _run(self) -> None:
        try:
            while self._cycle():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever ends this thread must reach those who wait for it
            self._die(error)

    def _cycle(self) -> bool:
        """Launch a step where one may, else finish one, else wait for either; return False at the end of all work.

        Nothing of a step outlives the call: a model that is unloaded later must not be held by an idle thread.
        """
        lane = self._next_lane()
        if lane is not None:
            step = self._launch(lane)
            if step is not None:
                self._flying.append(step)
            return True
        step = self._next_ended()
        if step is not None:
            self._flying.remove(step)
            self._finish(step)
            return True
        return self._wait_for_work()

    def _next_lane(self) -> Lane | None:
        """Return the lane to launch a step of, after the calls that may run."""
        with self._wake:
            self._run_calls()
            return self._ready_lane()

    def _next_ended(self) -> Step | None:
        """Return a step that has ended, or the oldest one of a device, which has to be waited for; else None."""
        return next((step for step in self._flying if step.in_flight.ended is not False), None)

    def _wait_for_work(self) -> bool:
        """Return True when there is something to do, False when the loop is closed and all is done."""
        with self._wake:
            while not self._has_work():
                if self._closing and not self._flying:
                    return False
                self._wake.wait()
            return True

    def _has_work(self) -> bool:
        """Return whether a step has ended, or may be launched, or a call may run."""
        if self._next_ended() is not None or (self._calls and not self._flying):
            return True
        return self._ready_lane() is not None

    def _ready_lane(self) -> Lane | None:
        """Return the least served of the lanes that have a step to launch.

        None where there is no room for its step, or a call is to run first. Others do not go before it, or a model that
        needs all threads would wait for one that always has work for some.
        """
        ready = [] if self._calls else [lane for lane in self._lanes if lane.ready]
        lane = min(ready, key=lambda lane: lane.busy_seconds, default=None)
        has_room = lane is not None and self._num_flying() < lane.runner.steps_in_flight
        return lane if has_room else None

    def _num_flying(self) -> int:
        return sum(not step.in_flight.ended for step in self._flying)

    def _run_calls(self) -> None:
        while self._calls and not self._flying:
            function, future = self._calls.popleft()
            self._wake.release()
            try:
                function()
            except Exception as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(_died(error))
                raise
            else:
                future.set_result(None)
            finally:
                self._wake.acquire()
            del function, future  # may hold a model, and the thread may wait for long now

    def _launch(self, lane: Lane) -> Step | None:
        parts, is_alone = self._take(lane)
        if not parts:
            return None
        started = time.monotonic()
        for part in parts:
            part.request.started = part.request.started or started
        try:
            return self._start(lane, parts, is_alone)
        except Exception as error:  # noqa: BLE001 - the boundary of the loop
            self._isolate(lane, parts, error)
            return None

    def _take(self, lane: Lane) -> tuple[list[Part], bool]:
        """Return the next step of a lane, and whether it may have the device to itself: nothing else runs or waits,
        and what comes need not wait for long.
        """
        with self._wake:
            flying = self._num_flying()
            takes = lane.take(max(1, lane.runner.num_workers - flying))
            is_alone = not flying and not any(other.ready for other in self._lanes) and lane.is_brief(takes)
        return sorted(map(part_of, takes), key=lambda part: batch_order(part.piece)), is_alone

    def _start(self, lane: Lane, parts: list[Part], is_alone: bool = False) -> Step:
        pieces = [part.piece for part in parts]
        number, launched = next(self._numbers), time.monotonic()
        self._busy[number] = (lane, launched)
        try:
            in_flight = lane.runner.launch_alone(pieces) if is_alone else lane.runner.launch(pieces)
        except BaseException:
            del self._busy[number]
            raise
        in_flight.when_ended(self._notify)
        return Step(lane=lane, parts=parts, in_flight=in_flight, launched=launched, number=number)

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _finish(self, step: Step) -> None:
        try:
            results = step.in_flight.result()
        except Exception as error:  # noqa: BLE001 - the boundary of the loop
            self._isolate(step.lane, step.parts, error)
            return
        finally:
            del self._busy[step.number]
        step.lane.observe(sum(len(part.piece) for part in step.parts), time.monotonic() - step.launched)
        for part, result in zip(step.parts, results, strict=True):
            if isinstance(result, CenoteError):
                self._fail(step.lane, part.request, result)
            elif not part.piece.is_last:
                self._release(step.lane, part.request)
            elif part.request.note(part.position, result):
                self._forget(step.lane, part.request)  # first, so that the caller finds it out of the queue
                part.request.finish()

    def _release(self, lane: Lane, request: Request) -> None:
        with self._wake:
            lane.held.discard(request)

    def _isolate(self, lane: Lane, parts: list[Part], error: Exception) -> None:
        """Run a failed step again in smaller parts, down to the request, or the sequence, that is at fault."""
        smaller = smaller_steps(parts, error)
        if smaller is None:
            self._fail(lane, parts[0].request, explain(error))
            return
        for few in smaller:
            if few[0].request.future.done():
                continue
            try:
                step = self._start(lane, few)
            except Exception as again:  # noqa: BLE001 - the boundary of the loop
                self._isolate(lane, few, again)
                continue
            self._finish(step)

    def _die(self, error: BaseException) -> None:
        with self._wake:
            self._death = error
            calls, self._calls = self._calls, deque()
            lanes = list(self._lanes)
        dead = _died(error)
        for lane in lanes:
            self._fail_all(lane, dead)
        for _, future in calls:
            future.set_exception(dead)
        logger.critical("the engine's loop died: nothing is computed any more", exc_info=error)


_loops: weakref.WeakSet[Loop] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no step run while the interpreter ends."""
    for loop in list(_loops):
        loop.close()


def _died(error: BaseException) -> EngineClosedError:
    dead = EngineClosedError(f"the engine's loop died of {type(error).__name__}")
    dead.__cause__ = error
    return dead

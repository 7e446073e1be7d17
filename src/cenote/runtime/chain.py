"""Two requests that a caller sees as one: the second is made from the first one's answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def chain(first: Future[T], then: Callable[[T], Future[T]]) -> Future[T]:
    """Return a future of what `then(answer of first)` comes to; an error of either is its error.

    `then` runs on the thread that completes `first`, so it must not block. Cancelling the result cancels whichever of
    the two is on its way.
    """
    outer: Future[T] = Future()
    stages = [first]

    def withdraw(done: Future[T]) -> None:
        if done.cancelled():
            for stage in stages:
                stage.cancel()

    def fail(error: BaseException) -> None:
        if outer.set_running_or_notify_cancel():
            outer.set_exception(error)

    def finish(last: Future[T]) -> None:
        if last.cancelled():
            outer.cancel()
        elif error := last.exception():
            fail(error)
        elif outer.set_running_or_notify_cancel():
            outer.set_result(last.result())

    def go_on(done: Future[T]) -> None:
        if done.cancelled() or done.exception() is not None or outer.cancelled():
            finish(done)
            return
        try:
            second = then(done.result())
        except Exception as error:  # noqa: BLE001 - handed to the caller
            fail(error)
            return
        stages.append(second)
        if outer.cancelled():
            second.cancel()
        second.add_done_callback(finish)

    outer.add_done_callback(withdraw)
    first.add_done_callback(go_on)
    return outer

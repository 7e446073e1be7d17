"""Two requests as one future: answers, errors and cancellation at every stage."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future

import pytest

from cenote.runtime.chain import chain


def make() -> tuple[Future[int], list[Future[int]], Future[int]]:
    first: Future[int] = Future()
    seconds: list[Future[int]] = []

    def then(answer: int) -> Future[int]:
        if answer < 0:
            raise ValueError("negative")
        seconds.append(Future())
        return seconds[-1]

    return first, seconds, chain(first, then)


def test_the_answer_is_the_seconds() -> None:
    first, seconds, both = make()
    assert not seconds
    first.set_result(1)
    assert not both.done()
    seconds[0].set_result(2)
    assert both.result(timeout=1) == 2


def test_errors_of_either_and_of_the_step_between() -> None:
    first, seconds, both = make()
    first.set_exception(KeyError("first"))
    assert not seconds
    with pytest.raises(KeyError):
        both.result(timeout=1)
    first, _, both = make()
    first.set_result(-1)
    with pytest.raises(ValueError, match="negative"):
        both.result(timeout=1)
    first, seconds, both = make()
    first.set_result(1)
    seconds[0].set_exception(KeyError("second"))
    with pytest.raises(KeyError):
        both.result(timeout=1)


def test_cancelling_takes_along_whatever_is_on_its_way() -> None:
    first, seconds, both = make()
    assert both.cancel()
    assert first.cancelled()
    assert not seconds
    first, seconds, both = make()
    first.set_result(1)
    assert both.cancel()
    assert seconds[0].cancelled()


def test_a_first_that_cannot_be_cancelled_any_more_starts_no_second() -> None:
    first, seconds, both = make()
    first.set_running_or_notify_cancel()
    both.cancel()
    first.set_result(1)
    assert not seconds
    with pytest.raises(CancelledError):
        both.result(timeout=1)

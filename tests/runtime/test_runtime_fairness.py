"""The real loop under bulk jobs: a query's wait is counted in steps, not in seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cenote import Engine
from cenote.params import PoolingParams
from cenote.runtime.request import Request, Sequence
from tiny import CheckpointFactory

NUM_BULK_TEXTS = 2048
STEP = 64
MAX_STEPS = 3
"""A query's own step included."""


def submit(engine: Engine, lengths: list[int]) -> Request:
    params = {"embed": PoolingParams(task="embed")}
    request = Request(sequences=[Sequence(token_ids=np.full(n, 5), params=params, num_keys=n) for n in lengths])
    engine._core.loop.submit(engine._core.lane, request)
    return request


def bulk(engine: Engine, length: int = 30) -> Request:
    return submit(engine, [length] * NUM_BULK_TEXTS)


class Steps:
    """Lets the loop run one step at a time, and notes which model it was of. What still waits at the end is dropped."""

    def __init__(self, *engines: Engine) -> None:
        self._engines = engines
        self._allowed = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)
        self._is_open = False
        self.models: list[int] = []
        for number, engine in enumerate(engines):
            engine._core.lane.runner.model.backbone.register_forward_pre_hook(self._hook(number))

    def _hook(self, number: int) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self.models.append(number)
            self._begun.release()
            if not self._is_open:
                assert self._allowed.acquire(timeout=60)

        return hook

    def until_one_waits(self) -> None:
        assert self._begun.acquire(timeout=60)

    def run(self, number: int) -> None:
        """Let the step that waits run, and others, until the next one of `number` waits."""
        for _ in range(number):
            self._allowed.release()
            self.until_one_waits()

    def until_done(self, request: Request) -> int:
        """Return how many steps run until `request` is answered, the one that is on its way not counted."""
        for steps in range(100):
            self.run(1)
            if request.future.done():
                return steps
        raise AssertionError("100 steps and no answer")

    def open(self) -> None:
        self._is_open = True
        self._allowed.release(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._engines:
            for request in list(engine._core.lane.unanswered):
                request.future.cancel()
        self.open()


@pytest.fixture
def engine(checkpoint: CheckpointFactory) -> Iterator[Engine]:
    with Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=STEP) as engine:
        yield engine


@pytest.mark.parametrize("num_jobs", [1, 8, 40])
@pytest.mark.parametrize("num_steps_before", [1, 25])
@pytest.mark.parametrize("length", [30, STEP])
def test_a_query_waits_at_most_three_steps_behind_bulk_jobs(
    engine: Engine, num_jobs: int, num_steps_before: int, length: int
) -> None:
    with Steps(engine) as steps:
        for _ in range(num_jobs):
            bulk(engine, length)
        steps.until_one_waits()
        steps.run(num_steps_before)
        waited = [steps.until_done(submit(engine, [12])) for _ in range(20)]
    assert max(waited) <= MAX_STEPS


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=12), st.integers(1, 60))
def test_a_query_waits_at_most_three_steps_behind_any_jobs(
    checkpoint: CheckpointFactory, jobs: list[tuple[int, int]], length: int
) -> None:
    with (
        Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=STEP, verify=False) as engine,
        Steps(engine) as steps,
    ):
        for number, size in jobs:
            submit(engine, [size] * number)
        bulk(engine)
        steps.until_one_waits()
        assert steps.until_done(submit(engine, [length])) <= MAX_STEPS


def test_the_bulk_job_goes_on_under_queries(engine: Engine) -> None:
    """As many queries as fill every step: the job gets its share all the same, and the right answers in the end."""
    with Steps(engine) as steps:
        job = bulk(engine, 16)
        steps.until_one_waits()
        for _ in range(60):
            submit(engine, [STEP])
            steps.run(1)
        assert job.next >= 3
        steps.open()
        assert len(job.future.result(timeout=300).results) == NUM_BULK_TEXTS


def takes(monkeypatch: pytest.MonkeyPatch, engine: Engine, seconds: float) -> None:
    """Let every step of `engine` count as `seconds`, whatever the machine does."""
    lane = engine._core.lane
    observe = lane.observe
    monkeypatch.setattr(lane, "observe", lambda num_tokens, _: observe(num_tokens, seconds))


def test_a_model_that_rested_does_not_make_up_for_it(
    engine: Engine, checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty steps of one model alone, then a bulk job of the other: queries of the first wait three steps still."""
    with Engine(checkpoint("distilbert"), pooling="mean", max_batch_tokens=STEP, loop=engine._loop) as other:
        takes(monkeypatch, engine, 0.1)
        takes(monkeypatch, other, 0.1)
        with Steps(engine, other) as steps:
            bulk(engine)
            steps.until_one_waits()
            steps.run(50)
            bulk(other)
            waited = [steps.until_done(submit(engine, [12])) for _ in range(10)]
            assert max(waited) <= MAX_STEPS
            assert {0, 1} == set(steps.models[-10:])


def test_two_models_share_the_device_by_time(
    engine: Engine, checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of one take three times as long: it gets a third as many."""
    with Engine(checkpoint("distilbert"), pooling="mean", max_batch_tokens=STEP, loop=engine._loop) as slow:
        takes(monkeypatch, engine, 0.1)
        takes(monkeypatch, slow, 0.3)
        with Steps(engine, slow) as steps:
            bulk(engine)
            bulk(slow)
            steps.until_one_waits()
            steps.run(40)
            assert 9 <= sum(steps.models[-40:]) <= 11

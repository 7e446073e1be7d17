"""The queue is bounded in tokens: who comes in, who is refused and how, and when room is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cenote import BusyError, Engine, EngineClosedError, EngineError, OversizeError
from cenote.params import PoolingParams
from cenote.runtime.request import Request, Sequence
from tiny import CheckpointFactory

BOUND = 100
STEP = 20


@dataclass
class Gated:
    """An engine whose steps wait for `gate`."""

    engine: Engine
    gate: threading.Event
    entered: threading.Event

    def submit(self, *lengths: int) -> Request:
        sequences = [
            Sequence(token_ids=np.full(n, 5), params={"embed": PoolingParams(task="embed")}, num_keys=n)
            for n in lengths
        ]
        request = Request(sequences=sequences)
        self.engine._core.loop.submit(self.engine._core.lane, request)
        return request

    def occupy(self) -> Request:
        """Let one step run into the gate; its tokens wait no longer."""
        request = self.submit(STEP)
        assert self.entered.wait(60)
        return request

    @property
    def queued(self) -> tuple[int, int]:
        load = self.engine.load
        return load.queued_requests, load.queued_tokens


@pytest.fixture
def gated(checkpoint: CheckpointFactory) -> Iterator[Gated]:
    with Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=STEP, max_queue_tokens=BOUND) as engine:
        gate, entered = threading.Event(), threading.Event()

        def wait(*_: object) -> None:
            entered.set()
            gate.wait(60)

        engine._core.lane.runner.model.backbone.register_forward_pre_hook(wait)
        yield Gated(engine, gate, entered)
        gate.set()


def test_a_full_queue_refuses_and_says_when_to_come_back(gated: Gated) -> None:
    first = gated.occupy()
    waiting = [gated.submit(20, 20), gated.submit(20, 20, 20)]
    assert gated.queued == (2, BOUND)
    with pytest.raises(BusyError, match=r"100 tokens wait .* max_queue_tokens") as refused:
        gated.submit(1)
    assert 1 <= refused.value.retry_after <= 600
    assert gated.queued == (2, BOUND)
    gated.gate.set()
    for request in (first, *waiting):
        request.future.result(timeout=60)
    assert gated.queued == (0, 0)
    assert gated.submit(20).future.result(timeout=60)
    assert gated.engine.load.unanswered_requests == 0


def test_what_is_scheduled_makes_room_before_it_is_answered(gated: Gated) -> None:
    gated.occupy()
    assert gated.queued == (0, 0)
    gated.submit(*[STEP] * (BOUND // STEP))
    assert gated.queued == (1, BOUND)


def test_a_large_request_comes_in_where_nothing_waits(gated: Gated) -> None:
    gated.gate.set()
    assert len(gated.submit(*[10] * 10).future.result(timeout=60).results) == 10


def test_a_request_that_never_fits_is_refused_for_good(gated: Gated) -> None:
    with pytest.raises(OversizeError, match=r"101 tokens, and at most 100 .* max_queue_tokens") as refused:
        gated.submit(*[10] * 10, 1)
    assert refused.value.status == 413
    assert gated.queued == (0, 0)


def test_a_cancelled_request_frees_its_tokens_at_once(gated: Gated) -> None:
    """No step ends meanwhile: the gate stays shut."""
    gated.occupy()
    kept, leaving = gated.submit(20), gated.submit(*[20] * 4)
    with pytest.raises(BusyError):
        gated.submit(1)
    assert leaving.future.cancel()
    assert gated.queued == (1, 20)
    late = gated.submit(*[20] * 4)
    gated.gate.set()
    kept.future.result(timeout=60)
    late.future.result(timeout=60)
    assert gated.queued == (0, 0)


def test_a_failed_request_frees_its_tokens(gated: Gated) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("injected")

    gated.engine._core.lane.runner.model.backbone.register_forward_pre_hook(fail)
    gated.gate.set()
    with pytest.raises(EngineError, match="injected"):
        gated.submit(*[10] * 10).future.result(timeout=60)
    assert gated.queued == (0, 0)
    assert gated.engine.load.unanswered_requests == 0


def test_a_refused_verb_queues_nothing(gated: Gated) -> None:
    with pytest.raises(OversizeError):
        gated.engine.embed([[5 + i] * STEP for i in range(6)])
    assert gated.queued == (0, 0)


@pytest.mark.parametrize("bound", [None, 0])
def test_without_a_bound_everything_comes_in(checkpoint: CheckpointFactory, bound: int | None) -> None:
    with Engine(checkpoint("bert"), pooling="mean", max_queue_tokens=bound) as engine:
        assert engine.embed([[5] * 50] * 200).shape == (200, 64)


def test_steps_are_counted(gated: Gated) -> None:
    gated.gate.set()
    for _ in range(3):
        gated.submit(10).future.result(timeout=60)
    load = gated.engine.load
    assert (load.num_steps, load.num_tokens, load.step_tokens) == (3, 30, STEP)
    assert sum(load.step_fill.counts) == 3
    assert load.step_fill.total == pytest.approx(1.5)
    assert load.step_fill.counts[load.step_fill.bounds.index(0.5)] == 3
    assert load.step_seconds.total > 0


def test_a_model_that_was_unloaded_takes_nothing(gated: Gated, checkpoint: Callable[..., Path]) -> None:
    """A request may be tokenised while its model goes: it must not wait for a lane that nobody serves."""
    other = Engine(checkpoint("bert"), pooling="mean", loop=gated.engine._loop)
    lane = other._core.lane
    other.close()
    request = Request(sequences=[Sequence(token_ids=np.full(3, 5), params={}, num_keys=3)])
    with pytest.raises(EngineClosedError, match="unloaded"):
        gated.engine._loop.submit(lane, request)

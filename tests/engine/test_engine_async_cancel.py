"""Cancelling an awaited verb takes its request out of the queue, whenever the cancellation comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cenote import Engine, EngineClosedError
from cenote.engine import AsyncEngine
from cenote.text.content import FEW_CHARACTERS
from tiny import CheckpointFactory
from tolerances import assert_close


@pytest.fixture
def engine(checkpoint: Callable[..., Path]) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(checkpoint("bert"), pooling="mean", threads=1)
    yield engine
    engine.close()


def test_cancelled_while_it_is_tokenised(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = engine._core.encoder
    has_begun, may_go_on = threading.Event(), threading.Event()
    submitted = []
    encode, submit = encoder.encode, engine._core.loop.submit

    def slow_encode(*args: object) -> object:
        has_begun.set()
        assert may_go_on.wait(10)
        return encode(*args)

    def noted_submit(lane: object, request: object) -> None:
        submitted.append(request)
        submit(lane, request)

    async def run() -> None:
        task = asyncio.create_task(engine.embed("the cat " * FEW_CHARACTERS))
        await asyncio.to_thread(has_begun.wait, 10)
        # The loop is kept busy, so that the request can only leave by being withdrawn.
        busy, may_end = threading.Event(), threading.Event()
        blocked = asyncio.create_task(asyncio.to_thread(engine._core.loop.call, lambda: (busy.set(), may_end.wait(10))))
        await asyncio.to_thread(busy.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        while not submitted or not submitted[0].future.cancelled():
            await asyncio.sleep(0.01)
        may_end.set()
        await blocked

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "encode", slow_encode)
        patch.setattr(engine._core.loop, "submit", noted_submit)
        asyncio.run(asyncio.wait_for(run(), 20))
    assert asyncio.run(engine_embeds(engine)) == (1, 64)


async def engine_embeds(engine: AsyncEngine) -> tuple[int, ...]:
    return (await engine.embed("the cat")).shape


def test_closed_engine_refuses(engine: AsyncEngine) -> None:
    engine.close()
    assert not engine.healthy
    with pytest.raises(EngineClosedError):
        asyncio.run(engine_embeds(engine))


class Gate:
    """Holds the engine's steps back, and counts them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.num_steps = 0
        self.begun, self.may_run = threading.Event(), threading.Event()
        engine._core.lane.runner.model.backbone.register_forward_pre_hook(self._step)

    def _step(self, *_: object) -> None:
        self.num_steps += 1
        self.begun.set()
        assert self.may_run.wait(60)


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_a_bulk_job_leaves_at_once(engine: AsyncEngine, way: str) -> None:
    """2,048 texts of about a hundred steps: the one that runs is the only one, and its tokens wait no longer."""
    engine._core.lane.step_tokens, engine._core.lane.pace = 512, None
    gate = Gate(engine)

    async def run() -> tuple[int, ...]:
        deadline = asyncio.timeout(None)
        job = asyncio.create_task(_limited(engine, deadline))
        assert await asyncio.to_thread(gate.begun.wait, 60)
        assert engine.load.queued_tokens > 20_000
        if way == "cancel":
            job.cancel()
        else:
            deadline.reschedule(asyncio.get_running_loop().time())
        with pytest.raises(TimeoutError if way == "timeout" else asyncio.CancelledError):
            await job
        assert (engine.load.queued_tokens, engine.load.unanswered_requests) == (0, 0)
        gate.may_run.set()
        return await engine_embeds(engine)

    assert asyncio.run(asyncio.wait_for(run(), 60)) == (1, 64)
    assert gate.num_steps == 2, "the step in flight, and that of the text after it"


async def _limited(engine: AsyncEngine, deadline: asyncio.Timeout) -> object:
    async with deadline:
        return await engine.embed([[5 + i % 60, 5 + i // 60] * 10 for i in range(2048)])


class SlowTexts:
    """Makes the tokenising of many texts wait, and counts it."""

    def __init__(self, engine: AsyncEngine, patch: pytest.MonkeyPatch) -> None:
        self.num_begun = 0
        self.may_go_on = threading.Event()
        self._encode = engine._core.encoder.encode
        patch.setattr(engine._core.encoder, "encode", self)

    def __call__(self, texts: list[str], *rest: object) -> object:
        if len(texts) > 100:
            self.num_begun += 1
            assert self.may_go_on.wait(60)
        return self._encode(texts, *rest)


def test_a_query_does_not_wait_for_the_tokenising_of_bulk_jobs(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a bulk job whose caller left before its tokenising began is never tokenised."""
    slow = SlowTexts(engine, monkeypatch)

    async def run() -> None:
        texts = [f"the cat {number}" for number in range(200)]
        jobs = [asyncio.create_task(engine.embed(texts)) for _ in range(4)]
        while slow.num_begun < 2:
            await asyncio.sleep(0.01)
        assert (await engine.embed("the cat")).shape == (1, 64)
        for job in jobs[2:]:
            job.cancel()
        await asyncio.gather(*jobs[2:], return_exceptions=True)
        slow.may_go_on.set()
        for answer in await asyncio.gather(*jobs[:2]):
            assert answer.shape == (200, 64)
        assert slow.num_begun == 2

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    ("texts", "thread"),
    [
        ("the cat", "MainThread"),
        (["the cat", "a dog"], "MainThread"),
        ("a" * FEW_CHARACTERS, "MainThread"),
        ("a" * (FEW_CHARACTERS + 1), "cenote-text_0"),
        (["the cat"] * 200, "cenote-texts_0"),
        (("the cat",) * 200, "cenote-texts_0"),
        (np.array(["the cat"] * 3), "cenote-texts_0"),
        ([5, 6, 7], "cenote-text_0"),
    ],
)
def test_only_short_texts_are_tokenised_where_they_come_in(
    texts: Any,
    thread: str,
    engine: AsyncEngine,
    checkpoint: CheckpointFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode, seen = engine._core.encoder.encode, []

    def noted(*args: object) -> object:
        seen.append(threading.current_thread().name)
        return encode(*args)

    monkeypatch.setattr(engine._core.encoder, "encode", noted)

    async def run() -> npt.NDArray[np.float32]:
        return await engine.embed(texts)

    vectors = asyncio.run(run())
    assert seen == [thread]
    with Engine(checkpoint("bert"), pooling="mean", threads=1) as blocking:
        assert_close(vectors, blocking.embed(texts))

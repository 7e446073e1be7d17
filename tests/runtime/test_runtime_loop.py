"""What happens when a step fails, a caller leaves, or the loop dies."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import DeviceMemoryError, Engine, EngineClosedError, EngineError, NonFiniteError
from cenote.models.batch import PackedBatch
from cenote.params import PoolingParams
from cenote.runtime.request import Answer, Request, Sequence
from tiny import CheckpointFactory
from tolerances import assert_close

MARKED = 77
"""A token id that makes the model fail."""


@pytest.fixture
def engine(checkpoint: CheckpointFactory) -> Iterator[Engine]:
    with Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=32) as engine:
        yield engine


def break_on_mark(engine: Engine, error: Exception) -> None:
    """Make every step that holds the marked token raise."""

    def hook(_: torch.nn.Module, arguments: tuple[PackedBatch]) -> None:
        if (arguments[0].input_ids_T == MARKED).any():
            raise error

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)


def ids(*lengths: int) -> list[list[int]]:
    return [[5 + (i * 7 + n) % 60 for i in range(n)] for n in lengths]


def submit(engine: Engine, texts: list[list[int]]) -> Request:
    request = Request(
        sequences=[
            Sequence(token_ids=np.array(text), params={"embed": PoolingParams(task="embed")}, num_keys=len(text))
            for text in texts
        ]
    )
    engine._core.loop.submit(engine._core.lane, request)
    return request


@pytest.mark.parametrize(
    ("error", "expected"),
    [(RuntimeError("a kernel failed"), EngineError), (torch.OutOfMemoryError("no memory"), DeviceMemoryError)],
)
def test_only_the_request_at_fault_fails(engine: Engine, error: Exception, expected: type[Exception]) -> None:
    """BL-25: fifteen good requests share steps with a bad one, twenty times over."""
    good = ids(*range(2, 17))
    alone = [engine.embed(text)[0] for text in good]
    break_on_mark(engine, error)
    for _ in range(20):
        bad = submit(engine, [[5, MARKED, 6]])
        requests = [submit(engine, [text]) for text in good]
        with pytest.raises(expected):
            bad.future.result(timeout=60)
        for request, reference in zip(requests, alone, strict=True):
            assert_close(request.future.result(timeout=60).results[0]["embed"], reference)
    assert engine.healthy
    assert not engine._core.lane.waiting
    assert not engine._core.lane.unanswered


def run_out_of_device_memory() -> None:
    raise torch.OutOfMemoryError("more than two texts do not fit")


def run_out_of_host_memory() -> None:
    """As it really happens on a CPU, where torch raises a plain `RuntimeError`."""
    torch.empty(1 << 58, dtype=torch.uint8)


@pytest.mark.parametrize("run_out", [run_out_of_device_memory, run_out_of_host_memory])
def test_memory_errors_are_retried_in_smaller_steps(engine: Engine, run_out: Callable[[], None]) -> None:
    """A step too large for the memory is cut, down to one text, and answers all the same."""
    texts = ids(*[6] * 12)
    reference = engine.embed(texts)

    def hook(_: torch.nn.Module, arguments: tuple[PackedBatch]) -> None:
        if arguments[0].num_seqs > 2:
            run_out()

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    assert_close(engine.embed(texts), reference)


def test_a_text_that_needs_more_memory_than_there_is_is_told_so(engine: Engine) -> None:
    hook = engine._core.lane.runner.model.backbone.register_forward_pre_hook
    hook(lambda *_: run_out_of_host_memory())
    with pytest.raises(DeviceMemoryError, match="send shorter texts"):
        engine.embed("the cat")


def test_a_value_that_is_not_finite_fails_its_own_request(engine: Engine) -> None:
    good = ids(4, 9)
    reference = engine.embed(good)

    def hook(_: torch.nn.Module, arguments: tuple[PackedBatch], hidden_TH: torch.Tensor) -> torch.Tensor:
        marked = arguments[0].input_ids_T == MARKED
        return torch.where(marked[:, None], torch.nan, hidden_TH)

    engine._core.lane.runner.model.backbone.register_forward_hook(hook)
    neighbour, bad = submit(engine, good), submit(engine, [[5, MARKED]])
    with pytest.raises(NonFiniteError, match="not finite"):
        bad.future.result(timeout=60)
    assert_close(np.stack([r["embed"] for r in neighbour.future.result(timeout=60).results]), reference)


def test_a_cancelled_request_leaves_the_queue(engine: Engine) -> None:
    """The steps that run are counted: those of the cancelled job never do."""
    gate = threading.Event()
    engine._core.lane.runner.model.backbone.register_forward_pre_hook(lambda *_: gate.wait(10) and None)
    first = submit(engine, ids(8))
    bulk = submit(engine, ids(*[30] * 100))
    last = submit(engine, ids(8))
    assert bulk.future.cancel()
    before = engine._core.lane.num_steps
    gate.set()
    wait([first.future, last.future], timeout=60)
    assert isinstance(last.future.result(timeout=60), Answer)
    assert engine._core.lane.num_steps - before <= 3
    assert bulk.num_done <= 1


def test_a_dead_loop_fails_everything_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    loop = engine._core.loop

    def die(*_: Any) -> None:
        gate.wait(10)
        raise KeyboardInterrupt("the thread is hit by something that no step can raise")

    monkeypatch.setattr(loop, "_launch", die)
    waiting = [submit(engine, ids(8)) for _ in range(5)]
    gate.set()
    started = time.monotonic()
    for request in waiting:
        with pytest.raises(EngineClosedError, match="died"):
            request.future.result(timeout=5)
    assert time.monotonic() - started < 1
    assert not engine.healthy
    with pytest.raises(EngineClosedError, match="died"):
        engine.embed("after")


def test_closing_finishes_what_is_queued_and_refuses_what_comes(checkpoint: CheckpointFactory) -> None:
    engine = Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=32)
    requests = [submit(engine, ids(*[20] * 10)) for _ in range(3)]
    engine.close()
    assert all(len(request.future.result(timeout=0).results) == 10 for request in requests)
    with pytest.raises(EngineClosedError, match="closed"):
        engine.embed("late")
    engine.close()


def test_an_engine_that_is_forgotten_ends_its_thread(checkpoint: CheckpointFactory) -> None:
    engine = Engine(checkpoint("bert"), pooling="mean")
    thread = engine._core.loop._thread
    del engine
    thread.join(timeout=5)
    assert not thread.is_alive()


def test_two_models_share_one_loop(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    first = Engine(checkpoint("bert"), pooling="mean")
    second = Engine(checkpoint("distilbert"), pooling="cls", loop=first._loop)
    texts = ids(5, 12)
    threads = [threading.Thread(target=engine.embed, args=(texts,)) for engine in (first, second) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert first.embed(texts).shape == second.embed(texts).shape == (2, 64)
    second.close()
    assert first.healthy
    assert first.embed(texts).shape == (2, 64)
    first.close()


def test_a_stuck_step_is_known_and_not_waited_for(checkpoint: CheckpointFactory) -> None:
    """Health comes back when the step does; closing meanwhile does not hang, and what comes is refused."""
    engine = Engine(checkpoint("bert"), pooling="mean", stall_seconds=1)
    gate, begun = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        gate.wait(60)

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hang)
    stuck = submit(engine, ids(8))
    assert begun.wait(60)
    assert engine.healthy
    time.sleep(1.1)
    assert not engine.healthy
    with pytest.raises(EngineClosedError, match="stall_seconds"):
        engine.embed("after")
    thread = engine._loop._thread
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < 5
    gate.set()
    assert stuck.future.result(timeout=60).results
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_unloading_beside_a_busy_loop_never_kills_it(checkpoint: CheckpointFactory) -> None:
    """Requests end in the moment in which their model goes: each has its answer or is told, and others go on."""
    first = Engine(checkpoint("bert"), pooling="mean")
    for _ in range(20):
        second = Engine(checkpoint("distilbert"), pooling="cls", loop=first._loop, verify=False)
        requests = [submit(second, ids(5, 12)) for _ in range(30)]
        second.close()
        for request in requests:
            error = request.future.exception(timeout=60)
            assert error is None or isinstance(error, EngineClosedError)
        assert first.embed(ids(5)).shape == (1, 64)
    first.close()


def test_an_engine_that_nobody_holds_ends_also_where_a_step_of_it_collects_it(checkpoint: CheckpointFactory) -> None:
    """The collector runs on any thread: waiting there for the loop, which waits for that step, would be for ever."""
    engine: Engine | None = Engine(checkpoint("bert"), pooling="mean", threads=2)
    assert engine is not None
    has_begun, is_dropped = threading.Event(), threading.Event()

    def hook(*_: object) -> None:
        has_begun.set()
        assert is_dropped.wait(60)
        gc.collect()

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    loop, dropped = engine._core.loop, weakref.ref(engine)
    future = submit(engine, ids(5)).future
    assert has_begun.wait(60)
    engine.itself = engine  # type: ignore[attr-defined] # so that only the collector frees it
    engine = None
    is_dropped.set()
    assert future.result(timeout=60).results
    loop._thread.join(60)
    assert not loop._thread.is_alive()
    assert dropped() is None
    torch.set_num_threads(1)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_request_is_freed_with_its_answer_and_waits_for_no_collection(engine: Engine, leaves: bool) -> None:
    """A cycle would keep the ids of every text in memory until Python's collector happens to look at them."""
    gc.disable()
    try:
        request = submit(engine, ids(5, 12))
        future, freed = request.future, weakref.ref(request)
        if leaves:
            future.cancel()
        del request
        wait([future], timeout=60)
        submit(engine, ids(5)).future.result(timeout=60)  # the loop has nothing more to do with the one before
        deadline = time.monotonic() + 60
        while freed() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert freed() is None
    finally:
        gc.enable()


def test_a_call_that_ends_the_loop_has_an_answer(engine: Engine) -> None:
    with pytest.raises(EngineClosedError, match="died of SystemExit"):
        engine._core.loop.call(sys.exit)
    with pytest.raises(EngineClosedError, match="died of SystemExit"):
        engine.embed("the cat")
    assert not engine.healthy

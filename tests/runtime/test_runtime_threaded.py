"""Steps side by side: on one thread each, in any order, with the answers of steps one after another."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote import Engine
from cenote.checkpoint import read_checkpoint
from cenote.models.batch import PackedBatch
from cenote.models.load import load_model
from cenote.params import PoolingParams
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece, Request, Sequence
from cenote.runtime.runner import ModelRunner
from cenote.runtime.threaded import ThreadedRunner
from tiny import CheckpointFactory
from tolerances import assert_close

EMBED = {"embed": PoolingParams(task="embed")}
MARKED = 77
NUM_THREADS = 3


def piece(length: int, seed: int = 0) -> Piece:
    ids = np.random.default_rng(seed).integers(5, 70, length)
    return Piece(sequence=Sequence(token_ids=ids, params=EMBED, num_keys=length), stop=length)  # type: ignore[arg-type]


def runners(folder: Path, least_shared_tokens: int = 1) -> tuple[ModelRunner, ThreadedRunner]:
    spec = read_checkpoint(folder, pooling="mean")
    model = load_model(spec, dtype=torch.float32, device=torch.device("cpu"))
    pooler = build_pooler(spec, model, any_dimensions=False)
    threaded = ThreadedRunner(model, pooler, CpuDevice(), NUM_THREADS, least_shared_tokens)
    return ModelRunner(model, pooler, CpuDevice()), threaded


@pytest.fixture
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(NUM_THREADS)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_steps_give_the_numbers_of_one_after_another(family: str, checkpoint: CheckpointFactory) -> None:
    plain, threaded = runners(checkpoint(family))
    steps = [[piece(length, seed) for length in (3, 5, 9, 9, 17 + seed)] for seed in range(20)]
    launched = [threaded.launch(step) for step in steps]
    for step, running in zip(steps, launched, strict=True):
        for got, right in zip(running.result(), plain.launch(step).result(), strict=True):
            assert isinstance(got, dict)
            assert isinstance(right, dict)
            assert_close(got["embed"], right["embed"])  # type: ignore[arg-type]
    assert threaded.num_tokens == plain.num_tokens


@pytest.mark.usefixtures("several_threads")
def test_steps_run_at_the_same_time_each_on_one_thread(checkpoint: CheckpointFactory) -> None:
    """Every step waits inside the forward pass until all are there, after an operation that torch would share."""
    _, threaded = runners(checkpoint("bert"))
    together = threading.Barrier(NUM_THREADS)
    threads: dict[int, int] = {}

    def hook(*_: object) -> None:
        torch.ones(1 << 18).exp()
        threads[threading.get_ident()] = torch.get_num_threads()
        together.wait(timeout=60)

    threaded.model.backbone.register_forward_pre_hook(hook)
    for step in [threaded.launch([piece(20)]) for _ in range(NUM_THREADS)]:
        step.result()
    assert list(threads.values()) == [1] * NUM_THREADS


@pytest.mark.usefixtures("several_threads")
@pytest.mark.parametrize(
    ("lengths", "least", "is_shared"),
    [([5], 1, True), ([50], 50, True), ([50], 51, False), ([50, 50], 1, False)],
    ids=["short", "long enough", "too short", "several"],
)
def test_a_text_alone_takes_all_threads(
    lengths: list[int], least: int, is_shared: bool, checkpoint: CheckpointFactory
) -> None:
    _, threaded = runners(checkpoint("bert"), least)
    seen: list[tuple[bool, int]] = []

    def hook(*_: object) -> None:
        seen.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))

    threaded.model.backbone.register_forward_pre_hook(hook)
    threaded.launch_alone([piece(length) for length in lengths]).result()
    assert seen == [(True, NUM_THREADS) if is_shared else (False, 1)]


def test_the_callers_threads_stay_as_they_were(checkpoint: CheckpointFactory) -> None:
    before = torch.get_num_threads()
    runners(checkpoint("bert"))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


def test_the_threads_end_with_their_runner(checkpoint: CheckpointFactory) -> None:
    others = set(threading.enumerate())
    pair = runners(checkpoint("bert"))
    own = set(threading.enumerate()) - others
    assert len(own) == NUM_THREADS
    pair[1].launch([piece(20)] * NUM_THREADS).result()
    del pair
    gc.collect()
    for thread in own:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.fixture
def engine(checkpoint: CheckpointFactory, request: pytest.FixtureRequest) -> Iterator[Engine]:
    step_tokens: int = getattr(request, "param", 64)
    with Engine(checkpoint("bert"), pooling="mean", threads=2, max_batch_tokens=step_tokens) as engine:
        yield engine
    torch.set_num_threads(1)


def submit(engine: Engine, *lengths: int, first: int = 5, chunkable: bool = False) -> Request:
    sequences = [
        Sequence(token_ids=np.array([first, *range(6, 5 + length)]), params=EMBED, num_keys=length, chunkable=chunkable)
        for length in lengths
    ]
    request = Request(sequences=sequences)
    engine._core.loop.submit(engine._core.lane, request)
    return request


def hold_marked(engine: Engine) -> tuple[threading.Event, threading.Event]:
    """Hold every step with the marked token; return what tells that one has begun, and what lets them go on."""
    begun, gate = threading.Event(), threading.Event()

    def hook(_: torch.nn.Module, batches: tuple[PackedBatch]) -> None:
        if bool((batches[0].input_ids_T == MARKED).any()):
            begun.set()
            gate.wait(60)

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    return begun, gate


@pytest.mark.parametrize("engine", [8], indirect=True)
def test_a_request_overtakes_a_step_that_takes_long(engine: Engine) -> None:
    """The slow step is on one thread; the other one goes on, and its answers do not wait."""
    begun, gate = hold_marked(engine)
    slow = submit(engine, 40, first=MARKED)
    assert begun.wait(60)
    for _ in range(5):
        assert submit(engine, 9).future.result(timeout=60).results
    assert not slow.future.done()
    gate.set()
    assert slow.future.result(timeout=60).results


def test_idle_threads_share_what_waits(engine: Engine) -> None:
    """Eight texts that would fit into one step are two steps of four, which run side by side."""
    sizes: list[int] = []
    together = threading.Barrier(2)

    def hook(_: torch.nn.Module, batches: tuple[PackedBatch]) -> None:
        sizes.append(batches[0].num_seqs)
        together.wait(60)

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    assert submit(engine, *[8] * 8).future.result(timeout=60).results
    assert sizes == [4, 4]


def test_a_failed_step_fails_the_request_at_fault_only(engine: Engine) -> None:
    lengths = [20] * 8
    expected = [row["embed"] for row in submit(engine, *lengths).future.result(timeout=60).results]

    def hook(_: torch.nn.Module, batches: tuple[PackedBatch]) -> None:
        if bool((batches[0].input_ids_T == MARKED).any()):
            raise RuntimeError("planted")

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    for _ in range(20):
        good, bad, other = submit(engine, *lengths), submit(engine, 20, 20, first=MARKED), submit(engine, *lengths)
        assert bad.future.exception(timeout=60) is not None
        for request in (good, other):
            for row, right in zip(request.future.result(timeout=60).results, expected, strict=True):
                assert_close(row["embed"], right)
    assert engine.healthy
    assert not engine.load.unanswered_requests


def test_one_stuck_step_is_known_while_others_end(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean", threads=2, stall_seconds=1, max_batch_tokens=8) as engine:
        begun, gate = hold_marked(engine)
        stuck = submit(engine, 40, first=MARKED)
        assert begun.wait(60)
        assert submit(engine, 9).future.result(timeout=60).results
        assert engine.healthy
        time.sleep(1.1)
        assert not engine.healthy
        gate.set()
        assert stuck.future.result(timeout=60).results
        assert engine.healthy
    torch.set_num_threads(1)


def test_a_call_waits_until_no_step_runs(engine: Engine) -> None:
    running: list[int] = []

    def hook(*_: object) -> None:
        running.append(1)
        time.sleep(0.01)
        running.pop()

    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    work = [submit(engine, *[20] * 20) for _ in range(3)]
    for _ in range(20):
        assert engine._core.loop.call(lambda: list(running)) == []
    for request in work:
        assert len(request.future.result(timeout=60).results) == 20


def test_of_a_text_in_chunks_only_one_is_on_its_way(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("qwen3"), pooling="last", threads=2, max_batch_tokens=16) as engine:
        lengths = (60, 50, 7, 33, 60)
        alone = [
            submit(engine, length, first=5 + n).future.result(timeout=60).results[0]["embed"]
            for n, length in enumerate(lengths)
        ]
        for _ in range(10):
            requests = [submit(engine, length, first=5 + n, chunkable=True) for n, length in enumerate(lengths)]
            for request, right in zip(requests, alone, strict=True):
                assert_close(request.future.result(timeout=60).results[0]["embed"], right, "chunked")
        assert not engine._core.lane.held
        assert not engine.load.unanswered_requests
    torch.set_num_threads(1)


@pytest.fixture
def deep(checkpoint: CheckpointFactory) -> Path:
    """A checkpoint whose smallest step takes far more than a millisecond on one thread."""
    return checkpoint("bert", num_hidden_layers=48)


@pytest.mark.usefixtures("several_threads")
def test_all_threads_share_the_steps_of_a_model_that_is_slow_on_one(deep: Path) -> None:
    texts = [[5 + (i + n) % 60 for i in range(n)] for n in (3, 9, 30)]
    with Engine(deep, pooling="mean", step_ms=1) as shared, Engine(deep, pooling="mean", step_ms=10_000) as apart:
        assert type(shared._core.lane.runner) is ModelRunner
        assert type(apart._core.lane.runner) is ThreadedRunner
        chosen = [{each.what: each.value for each in engine.info.decisions} for engine in (shared, apart)]
        assert [each.get("threads_per_step") for each in chosen] == ["all", None]
        assert_close(shared.embed(texts), apart.embed(texts))


@pytest.mark.usefixtures("several_threads")
def test_a_model_that_takes_all_threads_is_not_starved(checkpoint: CheckpointFactory, deep: Path) -> None:
    """Steps of the other one end one by one, and there is always another to begin."""
    with (
        Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=32) as fast,
        Engine(deep, pooling="mean", step_ms=1, loop=fast._loop) as slow,
    ):
        fast._core.lane.runner.model.backbone.register_forward_pre_hook(lambda *_: time.sleep(0.02))
        params = {"embed": PoolingParams(task="embed")}
        texts = [Sequence(token_ids=np.full(30, 5), params=params, num_keys=30) for _ in range(300)]
        bulk = Request(sequences=texts)
        fast._core.loop.submit(fast._core.lane, bulk)
        slow.embed([5, 6, 7])
        assert not bulk.future.done()
        bulk.future.result(timeout=60)

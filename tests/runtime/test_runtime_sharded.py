"""A step in shards: cut evenly, in order, with the answers of a step that is not cut."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cenote import Engine
from cenote.checkpoint import read_checkpoint
from cenote.models.batch import PackedBatch
from cenote.models.load import load_model
from cenote.params import PoolingParams
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice
from cenote.runtime.request import Piece, Sequence
from cenote.runtime.runner import ModelRunner
from cenote.runtime.sharded import MAX_IMBALANCE, MIN_SHARD_TOKENS, ShardedRunner, cut_evenly
from tiny import CheckpointFactory
from tolerances import assert_close

MARKED = 77
NUM_THREADS = 3


def piece(length: int, seed: int = 0) -> Piece:
    ids = np.random.default_rng(seed).integers(5, 70, length)
    params = {"embed": PoolingParams(task="embed")}
    return Piece(sequence=Sequence(token_ids=ids, params=params, num_keys=length), stop=length)  # type: ignore[arg-type]


def runners(folder: Path) -> tuple[ModelRunner, ShardedRunner]:
    spec = read_checkpoint(folder, pooling="mean")
    model = load_model(spec, dtype=torch.float32, device=torch.device("cpu"))
    pooler = build_pooler(spec, model, any_dimensions=False)
    return ModelRunner(model, pooler, CpuDevice()), ShardedRunner(model, pooler, CpuDevice(), NUM_THREADS)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(2, 8))
def test_shards_keep_the_order_and_are_about_equal(lengths: list[int], num_shards: int) -> None:
    pieces = [piece(length) for length in sorted(lengths)]
    shards = cut_evenly(pieces, num_shards)
    if shards is None:
        return
    assert [each for shard in shards for each in shard] == pieces
    sizes = [sum(map(len, shard)) for shard in shards]
    assert len(sizes) == num_shards
    assert max(sizes) <= MAX_IMBALANCE * sum(lengths) / num_shards
    assert min(sizes) > 0


@given(st.integers(MIN_SHARD_TOKENS, 200), st.integers(1, 5), st.integers(2, 8))
def test_equal_texts_are_always_cut(length: int, texts_in_each: int, num_shards: int) -> None:
    shards = cut_evenly([piece(length)] * (texts_in_each * num_shards), num_shards)
    assert shards is not None
    assert [len(shard) for shard in shards] == [texts_in_each] * num_shards


@pytest.mark.parametrize("lengths", [[400], [2, 3, 400], [4, 4, 4]], ids=["one", "uneven", "small"])
def test_what_cannot_be_cut_evenly_stays_whole(lengths: list[int]) -> None:
    assert cut_evenly([piece(length) for length in lengths], NUM_THREADS) is None


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_shards_give_the_numbers_of_the_whole(family: str, checkpoint: CheckpointFactory) -> None:
    whole, sharded = runners(checkpoint(family))
    pieces = [piece(length, seed) for seed, length in enumerate((3, 5, 9, 9, 12, 17, 18, 20, 20, 20))]
    assert cut_evenly(pieces, NUM_THREADS) is not None
    for got, right in zip(sharded.launch(pieces).result(), whole.launch(pieces).result(), strict=True):
        assert isinstance(got, dict)
        assert isinstance(right, dict)
        assert_close(got["embed"], right["embed"])  # type: ignore[arg-type]
    assert sharded.num_tokens == whole.num_tokens


def test_shards_run_at_the_same_time_each_on_one_thread(checkpoint: CheckpointFactory) -> None:
    """Every shard waits inside the forward pass until all are there."""
    _, sharded = runners(checkpoint("bert"))
    together = threading.Barrier(NUM_THREADS)
    threads: dict[int, int] = {}

    def hook(*_: object) -> None:
        threads[threading.get_ident()] = torch.get_num_threads()
        together.wait(timeout=60)

    sharded.model.backbone.register_forward_pre_hook(hook)
    sharded.launch([piece(20)] * NUM_THREADS).result()
    assert list(threads.values()) == [1] * NUM_THREADS


def test_the_callers_threads_stay_as_they_were(checkpoint: CheckpointFactory) -> None:
    before = torch.get_num_threads()
    runners(checkpoint("bert"))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


def test_a_failed_shard_fails_the_request_at_fault_only(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert")
    texts = [[2, *[10 + number] * 20, 3] for number in range(8)]
    with Engine(folder, pooling="mean", device="cpu", dtype="float32", threads=2) as engine:
        expected = engine.embed(texts)
        runner = engine._core.lane.runner
        assert isinstance(runner, ShardedRunner)

        def hook(_: torch.nn.Module, arguments: tuple[PackedBatch]) -> None:
            if bool((arguments[0].input_ids_T == MARKED).any()):
                raise RuntimeError("planted")

        runner.model.backbone.register_forward_pre_hook(hook)
        outcomes: dict[str, object] = {}

        def ask(name: str, asked: list[list[int]]) -> None:
            try:
                outcomes[name] = engine.embed(asked)
            except Exception as error:  # noqa: BLE001 - looked at below
                outcomes[name] = error

        threads = [
            threading.Thread(target=ask, args=arguments)
            for arguments in (("good", texts), ("bad", [[2, *[MARKED] * 20, 3]] * 4), ("other", texts[:4]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    torch.set_num_threads(1)
    assert isinstance(outcomes["bad"], Exception)
    assert_close(np.asarray(outcomes["good"]), expected)
    assert_close(np.asarray(outcomes["other"]), expected[:4])


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

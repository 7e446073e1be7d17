"""Decoder texts longer than a step run in chunks, and give what they give whole."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
import torch

from cenote import Engine, EngineError, PoolingParams
from cenote.params import TaskParams
from cenote.runtime.request import Request, Sequence
from tiny import CheckpointFactory
from tolerances import assert_close

CAUSAL = ["qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text"]
TEXTS = [np.random.default_rng(n).integers(7, 190, n).tolist() for n in (60, 3, 16, 17, 33, 20, 64, 1)]
EMBED: TaskParams = {"embed": PoolingParams(task="embed")}


def submit(engine: Engine, length: int, params: TaskParams) -> Request:
    ids = np.arange(7, 7 + length)
    request = Request(sequences=[Sequence(token_ids=ids, params=params, num_keys=length, chunkable=True)])
    engine._core.loop.submit(engine._core.lane, request)
    return request


@pytest.mark.parametrize("budget", [7, 16, 24])
@pytest.mark.parametrize("family", CAUSAL)
def test_chunks_equal_the_whole(checkpoint: CheckpointFactory, family: str, budget: int) -> None:
    folder = checkpoint(family)
    with Engine(folder, pooling="last") as whole, Engine(folder, pooling="last", max_batch_tokens=budget) as chunked:
        assert chunked.info.max_length == 64
        before = chunked._core.lane.num_steps
        assert_close(chunked.embed(TEXTS), whole.embed(TEXTS), "chunked")
        assert chunked._core.lane.num_steps - before >= sum(map(len, TEXTS)) / budget


@pytest.mark.parametrize(("family", "pooling"), [("qwen3", "mean"), ("qwen3", "cls"), ("qwen3_bidirectional", "last")])
def test_what_needs_all_rows_is_never_cut(checkpoint: CheckpointFactory, family: str, pooling: str) -> None:
    """The limit is lowered to the step instead, and says so."""
    with Engine(checkpoint(family), pooling=pooling, max_batch_tokens=16) as engine:
        assert engine.info.max_length == 16
        decisions = {each.what: each.value for each in engine.info.decisions}
        assert decisions["chunked_prefill"] == "off"
        lengths: list[int] = []
        backbone = engine._core.lane.runner.model.backbone
        backbone.register_forward_pre_hook(lambda _, batches: lengths.append(batches[0].max_seq_len))
        engine.embed([text[:16] for text in TEXTS])
        assert max(lengths) == 16


def test_a_request_cancelled_in_mid_chunk_frees_its_state(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("qwen3"), pooling="last", max_batch_tokens=16) as engine:
        reached, gate = threading.Event(), threading.Event()

        def hook(*_: object) -> None:
            reached.set()
            gate.wait(60)

        handle = engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
        request = submit(engine, 60, EMBED)
        assert reached.wait(60)
        assert request.states
        assert request.future.cancel()
        gate.set()
        handle.remove()
        assert engine.embed("control").shape == (1, 64)
        assert not request.states
        with pytest.raises(CancelledError):
            request.future.result(timeout=0)


def test_a_failing_chunk_is_run_again_beside_healthy_neighbours(checkpoint: CheckpointFactory) -> None:
    """The step of a middle chunk fails once for a neighbour; the chunked text is still right."""
    with Engine(checkpoint("qwen3"), pooling="last", max_batch_tokens=32) as engine:
        expected = engine.embed([list(range(7, 67))])[0]

        def hook(_: torch.nn.Module, batches: tuple[object, ...]) -> None:
            if (batches[0].input_ids_T == 150).any():  # type: ignore[attr-defined]
                raise RuntimeError("a kernel failed")

        engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
        request = submit(engine, 60, EMBED)
        bad = Request(sequences=[Sequence(token_ids=np.array([150, 9]), params=EMBED, num_keys=2)])
        engine._core.loop.submit(engine._core.lane, bad)
        assert_close(request.future.result(timeout=60).results[0]["embed"], expected, "chunked")
        with pytest.raises(EngineError):
            bad.future.result(timeout=60)

"""Several outputs of one request: one forward, one copy for each dtype, and the numbers of each output alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from cenote import Engine, InputError, PoolingParams
from cenote.runtime.device import CpuDevice, Event
from tiny import HIDDEN_SIZE, CheckpointFactory
from tolerances import assert_close
from waiting import until

TEXTS = ["the quick brown fox", "a lazy dog and the fox", "home", ""]


def write_bge_m3(folder: Path) -> None:
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")


@pytest.fixture
def engine(checkpoint: CheckpointFactory, tmp_path: Path) -> Iterator[Engine]:
    folder = Path(copytree(checkpoint("xlm-roberta"), tmp_path / "m3"))
    write_bge_m3(folder)
    with Engine(folder) as opened:
        yield opened


def count_work(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count forwards and copies back from here on."""
    counts = {"forwards": 0, "copies": 0}
    copy = CpuDevice.copy_to_host

    def counted_copy(self: CpuDevice, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        counts["copies"] += 1
        return copy(self, source)

    def hook(*_: object) -> None:
        counts["forwards"] += 1

    monkeypatch.setattr(CpuDevice, "copy_to_host", counted_copy)
    engine._core.lane.runner.model.backbone.register_forward_pre_hook(hook)
    return counts


def test_three_outputs_cost_one_forward_and_one_copy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_work(engine, monkeypatch)
    encoded = engine.encode(TEXTS, outputs=("dense", "sparse", "multi_vector"))
    assert counts == {"forwards": 1, "copies": 1}
    assert encoded.dense is not None
    assert encoded.sparse is not None
    assert encoded.multi_vector is not None
    assert encoded.dense.shape == (len(TEXTS), HIDDEN_SIZE)
    assert len(encoded.sparse) == len(encoded.multi_vector) == len(TEXTS)


def test_each_output_is_what_it_is_alone(engine: Engine) -> None:
    together = engine.encode(TEXTS)
    dense, sparse, multi = (engine.encode(TEXTS, outputs=[name]) for name in ("dense", "sparse", "multi_vector"))
    assert (dense.sparse, dense.multi_vector, sparse.dense, multi.dense) == (None, None, None, None)
    assert_close(together.dense, dense.dense)
    for i in range(len(TEXTS)):
        assert together.sparse[i].to_dict().keys() == sparse.sparse[i].to_dict().keys()
        assert_close(together.sparse[i].values, sparse.sparse[i].values, "raw")
        assert_close(together.multi_vector[i], multi.multi_vector[i])
    assert_close(together.dense, engine.embed(TEXTS))


def test_tasks_are_mixed_between_requests_of_one_step(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for the same step share its forward whatever they ask for."""
    alone = engine.encode(TEXTS)
    has_begun, gate = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        has_begun.set()
        assert gate.wait(60)

    handle = engine._core.lane.runner.model.backbone.register_forward_pre_hook(hold)
    blocker = threading.Thread(target=engine.embed, args=(["dog"],))
    blocker.start()
    assert has_begun.wait(60)
    answers: dict[str, object] = {}
    asked = {
        "dense": lambda: engine.embed(TEXTS, dimensions=HIDDEN_SIZE),
        "sparse": lambda: engine.encode(TEXTS, outputs=["sparse"]).sparse,
        "multi_vector": lambda: engine.encode(TEXTS, outputs=["multi_vector"]).multi_vector,
        "weights": lambda: engine.pool(TEXTS, "token_classify"),
        "raw": lambda: engine.pool(TEXTS, "embed", PoolingParams(use_activation=False)),
    }
    threads = [threading.Thread(target=lambda n=n, f=f: answers.update({n: f()})) for n, f in asked.items()]
    for thread in threads:
        thread.start()
    until(lambda: len(engine._core.lane.waiting) == len(asked))
    counts = count_work(engine, monkeypatch)
    gate.set()
    handle.remove()
    for thread in [*threads, blocker]:
        thread.join(timeout=60)
    assert counts["forwards"] <= 2
    assert_close(answers["dense"], alone.dense)
    assert [each.to_dict().keys() for each in answers["sparse"]] == [each.to_dict().keys() for each in alone.sparse]
    for got, expected in zip(answers["multi_vector"], alone.multi_vector, strict=True):
        assert_close(got, expected)
    raw = np.stack(answers["raw"])
    assert_close(raw / np.linalg.norm(raw, axis=1, keepdims=True), alone.dense)
    assert [len(each) for each in answers["weights"]] == [len(ids) - 2 for ids in engine.tokenize(TEXTS)]


def test_sparse_terms_come_with_their_strings_on_request(engine: Engine) -> None:
    plain = engine.encode(TEXTS[:1], outputs=["sparse"]).sparse[0]
    named = engine.encode(TEXTS[:1], outputs=["sparse"], return_tokens=True).sparse[0]
    assert plain.tokens is None
    assert named.tokens == engine._core.encoder.token_strings(named.indices)
    assert (np.diff(named.indices) > 0).all()


def test_multi_vectors_in_half_precision(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision leaves the device as such: a step then has one copy for each of its two dtypes."""
    single = engine.encode(TEXTS)
    counts = count_work(engine, monkeypatch)
    half = engine.encode(TEXTS, multi_vector_dtype="float16")
    assert counts == {"forwards": 1, "copies": 2}
    assert half.dense.dtype == np.float32
    for got, expected in zip(half.multi_vector, single.multi_vector, strict=True):
        assert got.dtype == np.float16
        assert np.abs(got - expected).max() < 5e-4


@pytest.mark.parametrize("outputs", [[], ["dens"], "dense"])
def test_unknown_outputs_are_named(engine: Engine, outputs: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        engine.encode("text", outputs=outputs)
    assert caught.value.param == "outputs"

"""Texts that occur several times in one request are computed once, and every one has its answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote import Engine
from cenote.params import PoolingParams
from cenote.runtime.request import Piece
from reranker_folders import tiny_reranker
from tiny import HIDDEN_SIZE, CheckpointFactory, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "the cat", "water", "the cat", "a dog and a bird"]
DIFFERENT = 3


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tiny_checkpoint("xlm-roberta", tmp_path_factory.mktemp("repeated"))
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")
    with Engine(folder, threads=1) as opened:
        yield opened


def count_sequences(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of sequences of every step from now on."""
    runner = engine._core.lane.runner
    launch, counted = runner.launch, []

    def counting(pieces: list[Piece]) -> object:
        counted.append(len(pieces))
        return launch(pieces)

    monkeypatch.setattr(runner, "launch", counting)
    return counted


def test_are_computed_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = np.concatenate([np.asarray(engine.embed([text])) for text in TEXTS])
    counted = count_sequences(engine, monkeypatch)
    found = engine.embed(TEXTS)
    assert sum(counted) == DIFFERENT
    assert_close(np.asarray(found), alone)


def test_usage_counts_every_one(engine: Engine) -> None:
    texts = [*TEXTS, "the cat " * 99, "the cat " * 99]
    usage = engine.embed(texts).usage
    assert usage is not None
    assert usage.num_tokens == [engine.embed([text]).num_tokens[0] for text in texts]
    assert usage.truncated == [False] * 6 + [True] * 2


def test_all_outputs_of_one_pass(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [engine.encode([text]) for text in TEXTS]
    counted = count_sequences(engine, monkeypatch)
    found = engine.encode(TEXTS)
    assert sum(counted) == DIFFERENT
    assert found.dense is not None
    assert found.sparse is not None
    assert found.multi_vector is not None
    for index, each in enumerate(alone):
        assert each.dense is not None
        assert each.sparse is not None
        assert each.multi_vector is not None
        assert_close(found.dense[index], each.dense[0])
        assert found.sparse[index].indices.tolist() == each.sparse[0].indices.tolist()
        assert_close(found.sparse[index].values, each.sparse[0].values, "raw")
        assert_close(found.multi_vector[index], each.multi_vector[0])


def test_every_text_has_arrays_of_its_own(engine: Engine) -> None:
    found = engine.encode(["the cat", "the cat"], ("sparse", "multi_vector"))
    assert found.multi_vector is not None
    assert found.sparse is not None
    second = found.multi_vector[1].copy(), found.sparse[1].values.copy()
    found.multi_vector[0][:] = 0
    found.sparse[0].values[:] = 0
    assert (found.multi_vector[1] == second[0]).all()
    assert (found.sparse[1].values == second[1]).all()


def test_other_wishes_are_another_sequence(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count_sequences(engine, monkeypatch)
    raw = PoolingParams(use_activation=False)
    found = engine.pool(["the cat"] * 4, "embed", [PoolingParams(), raw, PoolingParams(), raw])
    assert sum(counted) == 2
    assert (found[0] == found[2]).all()
    assert (found[1] == found[3]).all()
    assert abs(np.linalg.norm(found[1]) - 1) > 1e-3  # type: ignore[arg-type]


def test_pairs_and_late_interaction(
    engine: Engine, checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = count_sequences(engine, monkeypatch)
    scores = np.asarray(engine.score("water", TEXTS))
    assert sum(counted) == 1 + DIFFERENT
    assert scores[0] == scores[2] == scores[4]
    assert scores[1] == scores[5] != scores[0]
    with Engine(checkpoint("bert", head="sequence_classification", num_labels=1), threads=1) as pairs:
        alone = [float(pairs.score("water", [text])[0]) for text in TEXTS]
        counted = count_sequences(pairs, monkeypatch)
        assert_close(np.asarray(pairs.score("water", TEXTS)), np.array(alone))
        assert sum(counted) == DIFFERENT


def test_chunks_of_causal_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = add_sentence_transformers_files(tiny_reranker(tmp_path, head="base"), pooling_mode="lasttoken")
    long = "the cat and a dog " * 20
    with Engine(folder, threads=1, max_batch_tokens=32) as causal:
        alone = np.asarray(causal.embed([long]))
        counted = count_sequences(causal, monkeypatch)
        causal.embed([long])
        once = sum(counted)
        found = causal.embed([long, "the cat", long])
        assert sum(counted) == 2 * once + 1
    assert_close(np.asarray(found)[[0, 2]], np.concatenate([alone, alone]), "chunked")


def test_one_that_fails_fails_the_request(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = engine._core.lane.runner

    def failing(pieces: list[Piece]) -> object:
        raise RuntimeError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(runner, "launch", failing)
        with pytest.raises(Exception, match="broken"):
            engine.embed(TEXTS)
    assert len(engine.embed(TEXTS)) == len(TEXTS)

"""A call of very many texts is run in parts: the answer is the same, and what is queued at a time stays bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote import Engine, TooLongError
from cenote.engine import AsyncEngine
from cenote.outputs import Embeddings, SparseVector
from cenote.parts import PART_TEXTS, PARTS_IN_FLIGHT
from cenote.runtime.request import Request
from tiny import HIDDEN_SIZE, tiny_checkpoint
from tolerances import assert_close

NUM_TEXTS = 2 * PART_TEXTS + 7
WORDS = ["the", "cat", "a", "dog", "and", "bird", "water", "runs", "under", "old", "bridge"]
TEXTS = [f"{WORDS[i % 11]} {WORDS[i % 7]} {WORDS[i % 5]}" for i in range(NUM_TEXTS)]
SAMPLE = [0, 1, PART_TEXTS - 1, PART_TEXTS, PART_TEXTS + 1, 2 * PART_TEXTS, NUM_TEXTS - 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tiny_checkpoint("xlm-roberta", tmp_path_factory.mktemp("parts"))
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, threads=1) as opened:
        yield opened


def requests_of(engine: Engine | AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that gets, for each request from now on, how many wait unanswered with it, and its texts."""
    loop, found = engine._core.loop, []
    submit = loop.submit

    def noting(lane: Any, request: Request) -> None:
        submit(lane, request)
        found.append((len(lane.unanswered), len(request.places)))

    monkeypatch.setattr(loop, "submit", noting)
    return found


def test_dense_vectors_are_those_of_smaller_calls(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = requests_of(engine, monkeypatch)
    found = engine.embed(TEXTS)
    assert [texts for _, texts in requests] == [PART_TEXTS, PART_TEXTS, 7]
    assert max(waiting for waiting, _ in requests) <= PARTS_IN_FLIGHT
    assert isinstance(found, Embeddings)
    assert found.shape == (NUM_TEXTS, HIDDEN_SIZE)
    few = engine.embed([TEXTS[i] for i in SAMPLE])
    assert_close(np.asarray(found)[SAMPLE], np.asarray(few))
    assert [found.num_tokens[i] for i in SAMPLE] == few.num_tokens
    assert found.truncated == [False] * NUM_TEXTS
    assert found.usage is not None
    assert found.usage.inference_seconds > 0


def test_every_output_is_put_together(engine: Engine) -> None:
    found, few = engine.encode(texts=TEXTS), engine.encode([TEXTS[i] for i in SAMPLE])
    assert found.dense is not None
    assert few.dense is not None
    assert len(found.num_tokens) == NUM_TEXTS
    assert_close(found.dense[SAMPLE], few.dense)
    for output in ("sparse", "multi_vector"):
        rows, expected = getattr(found, output), getattr(few, output)
        assert len(rows) == NUM_TEXTS
        for place, i in enumerate(SAMPLE):
            assert_close(_values(rows[i]), _values(expected[place]))
    assert engine.encode(TEXTS, ["sparse"]).dense is None


def _values(row: Any) -> np.ndarray:
    return row.values if isinstance(row, SparseVector) else row


def test_lists_are_put_together(engine: Engine) -> None:
    found, few = engine.embed_all(TEXTS), engine.embed_all([TEXTS[i] for i in SAMPLE])
    assert len(found) == len(found.usage.num_tokens) == NUM_TEXTS
    for i, rows in zip(SAMPLE, few, strict=True):
        assert_close(found[i], rows)


def test_one_long_list_of_ids_is_one_text(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = requests_of(engine, monkeypatch)
    assert engine.embed([5] * (PART_TEXTS + 1)).shape == (1, HIDDEN_SIZE)
    assert requests == [(1, 1)]


def test_an_error_names_the_place_in_the_whole_call(engine: Engine) -> None:
    place = PART_TEXTS + 3
    texts = [*TEXTS[:place], "the cat " * 999, *TEXTS[place:]]
    with pytest.raises(TooLongError, match=rf"^texts\[{place}\] has ") as refused:
        engine.embed(texts, truncate=False)
    assert (refused.value.param, refused.value.index) == ("texts", place)
    assert not engine.load.unanswered_requests


def test_awaited_calls_are_run_in_parts_too(folder: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with AsyncEngine(folder, threads=1) as awaited:
            requests = requests_of(awaited, monkeypatch)
            found = await awaited.embed(TEXTS)
            assert sorted(texts for _, texts in requests) == [7, PART_TEXTS, PART_TEXTS]
            assert max(waiting for waiting, _ in requests) <= PARTS_IN_FLIGHT
            assert_close(np.asarray(found), np.asarray(engine.embed(TEXTS)))

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_cancelled_call_starts_no_more_parts(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with AsyncEngine(checkpoint("bert"), pooling="mean", threads=1) as awaited:
            requests = requests_of(awaited, monkeypatch)
            task = asyncio.create_task(awaited.embed(TEXTS * 4))
            while not requests:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.5)
            assert len(requests) <= PARTS_IN_FLIGHT + 1
            assert not awaited.load.unanswered_requests

    asyncio.run(asyncio.wait_for(run(), 60))

"""The real all-MiniLM-L6-v2 in int8 against itself in float32, on real sentences and a small retrieval set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cenote import Engine
from fetch_models import ensure

DATA = Path(__file__).parent.parent / "data"
SENTENCES = (DATA / "sentences.txt").read_text(encoding="utf-8").splitlines()
ENTRIES = [json.loads(line) for line in (DATA / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
PASSAGES = [entry["passage"] for entry in ENTRIES]
QUERIES = [(query, i) for i, entry in enumerate(ENTRIES) for query in entry["queries"]]


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Engine, Engine]]:
    folder = str(ensure("all-MiniLM-L6-v2"))
    with Engine(folder, device="cpu", dtype="float32") as fp32, Engine(folder, device="cpu", dtype="int8") as int8:
        yield fp32, int8


def test_real_sentences_stay_close(engines: tuple[Engine, Engine]) -> None:
    """The marks are those of the best int8 engines: 0.995 in the mean, 0.98 at least."""
    fp32, int8 = (np.asarray(engine.embed(SENTENCES)) for engine in engines)
    cosines = (fp32 * int8).sum(axis=1)
    assert cosines.mean() >= 0.995
    assert cosines.min() >= 0.98
    assert not np.array_equal(fp32, int8)


def test_retrieval_is_as_good(engines: tuple[Engine, Engine]) -> None:
    """Mean reciprocal rank of the right passage, within 1 %."""

    def mean_reciprocal_rank(engine: Engine) -> float:
        queries, passages = engine.embed([query for query, _ in QUERIES]), engine.embed(PASSAGES)
        ranks = (-(queries @ passages.T)).argsort(axis=1)
        return float(np.mean([1 / (1 + ranks[i].tolist().index(best)) for i, (_, best) in enumerate(QUERIES)]))

    fp32, int8 = map(mean_reciprocal_rank, engines)
    assert int8 >= 0.99 * fp32


def test_what_was_decided_is_shown(engines: tuple[Engine, Engine]) -> None:
    info = engines[1].info
    assert info.dtype == "int8"
    decision = next(each for each in info.decisions if each.what == "int8")
    assert decision.value == "oneDNN"
    assert "24 layers" in decision.reason
    assert "cosine to float32" in decision.reason


def test_a_text_has_the_same_vector_alone(engines: tuple[Engine, Engine]) -> None:
    """A row is rounded by its own range; what is left is the order of sums in fp32 and a rare step of rounding."""
    together = engines[1].embed(SENTENCES[:20])
    alone = np.concatenate([engines[1].embed(text) for text in SENTENCES[:20]])
    assert (together * alone).sum(axis=1).min() > 0.9995

"""The real all-MiniLM-L6-v2 against sentence-transformers, on real sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from cenote import Engine
from fetch_models import ensure
from tolerances import assert_close

SENTENCES = (Path(__file__).parent.parent / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(str(ensure("all-MiniLM-L6-v2")), device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    """One text at a time, so that nothing is padded there either."""
    model = SentenceTransformer(str(ensure("all-MiniLM-L6-v2")), device="cpu", local_files_only=True)
    return np.stack([model.encode(sentence) for sentence in SENTENCES])


def test_two_hundred_sentences_agree_with_sentence_transformers(engine: Engine, reference: np.ndarray) -> None:
    vectors = engine.embed(SENTENCES)
    assert len(SENTENCES) == 200
    assert (vectors * reference).sum(axis=1).min() >= 0.99999
    assert_close(vectors, reference, "unit")


def test_a_sentence_has_the_same_vector_alone(engine: Engine, reference: np.ndarray) -> None:
    alone = np.concatenate([engine.embed(sentence) for sentence in SENTENCES[::10]])
    assert_close(alone, reference[::10], "unit")

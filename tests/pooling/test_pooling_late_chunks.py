"""One mean for each piece of a sequence: against the plain formula, mixed with whole texts, and free of waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import SOME_LENGTHS, Step, hidden_rows, split
from test_pooling_contract import Watch
from torch import nn

from cenote.errors import InputError
from cenote.params import PoolingParams
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.heads.embedding import EmbeddingOptions, EmbeddingPoolerHead
from cenote.pooling.methods.cls import CLSPool
from cenote.pooling.output import pack_outputs
from cenote.pooling.poolers.late_chunks import LateChunkPooler
from cenote.pooling.poolers.sequence import SequencePooler
from tolerances import assert_close

Pieces = tuple[tuple[int, int], ...] | None
OPTIONS = EmbeddingOptions(DimensionRule(4, ()), normalize=True)


def pooler(normalize: bool = True) -> LateChunkPooler:
    torch.manual_seed(0)
    projector = nn.Linear(6, 4).requires_grad_(False)
    return LateChunkPooler(EmbeddingPoolerHead(projector, EmbeddingOptions(DimensionRule(4, ()), normalize)))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[Pieces]]:
    lengths = draw(SOME_LENGTHS)
    pieces: list[Pieces] = []
    for length in lengths:
        start = st.integers(0, length - 1)
        piece = start.flatmap(lambda first, length=length: st.tuples(st.just(first), st.integers(first + 1, length)))
        pieces.append(draw(st.none() | st.lists(piece, min_size=1, max_size=4).map(tuple)))
    return lengths, pieces


@given(batch=batches())
def test_pieces_in_any_company(batch: tuple[list[int], list[Pieces]]) -> None:
    lengths, pieces = batch
    late = pooler()
    rows = hidden_rows(lengths)
    found = late(rows, Step(lengths, params=[{"segments": each} for each in pieces]).metadata())
    for mine, of_text, each in zip(found, split(rows, lengths), pieces, strict=True):
        assert_close(mine, reference(late, of_text, each))


def reference(late: LateChunkPooler, rows: torch.Tensor, pieces: Pieces) -> torch.Tensor:
    means = [rows[start:stop].double().mean(dim=0) for start, stop in pieces or ((0, len(rows)),)]
    vectors = nn.functional.normalize(late.head.projector(torch.stack(means).float()), dim=1)
    return vectors[0] if pieces is None else vectors


def test_half_precision_is_summed_in_fp32() -> None:
    rows = torch.ones(3000, 6, dtype=torch.float16)
    late = LateChunkPooler(EmbeddingPoolerHead(nn.Identity(), EmbeddingOptions(DimensionRule(6, ()), normalize=False)))
    (found,) = late(rows, Step([3000], params=[{"segments": ((0, 2900), (2900, 3000))}]).metadata())
    assert found.dtype == torch.float32
    assert_close(found, torch.ones(2, 6), "raw")


def test_options_of_each_text_hold_for_its_pieces() -> None:
    lengths = [4, 3, 2]
    params = [
        {"segments": ((0, 2), (1, 4)), "dimensions": 2},
        {"segments": ((0, 3),), "use_activation": False},
        {"dimensions": 3},
    ]
    rows = hidden_rows(lengths)
    late = pooler()
    found = late(rows, Step(lengths, params=params).metadata())
    assert [tuple(each.shape) for each in found] == [(2, 2), (1, 4), (3,)]
    texts = split(rows, lengths)
    plain = [late.head.projector(texts[0][a:b].mean(dim=0)) for a, b in ((0, 2), (1, 4))]
    assert_close(found[0], nn.functional.normalize(torch.stack(plain)[:, :2], dim=1))
    assert_close(found[1], late.head.projector(texts[1].mean(dim=0))[None], "raw")


def test_the_table_has_a_row_for_each_piece() -> None:
    lengths = [5, 2]
    dispatcher = DispatchPooler({"embed": pooler()})
    metadata = Step(lengths, params=[{"segments": ((0, 1), (1, 3), (3, 5))}, {}]).metadata()
    flat = pack_outputs(dispatcher(hidden_rows(lengths), metadata))
    assert [(entry.sequence, entry.rows, entry.columns) for entry in flat.entries] == [(0, 3, 4), (1, None, 4)]


def test_nothing_waits_for_a_device() -> None:
    lengths = [5, 2]
    meta = torch.device("meta")
    late = pooler().to(meta)
    metadata = Step(lengths, params=[{"segments": ((0, 1), (1, 3))}, {}], device=meta).metadata()
    with Watch():
        found = late(torch.empty(7, 6, device=meta), metadata)
    assert [tuple(each.shape) for each in found] == [(2, 4), (4,)]


def test_other_poolings_have_no_piece_of_their_own() -> None:
    other = SequencePooler(CLSPool(), EmbeddingPoolerHead(nn.Identity(), OPTIONS))
    with pytest.raises(InputError, match=r"mean pooling alone.*CLSPool"):
        other.verify_params(PoolingParams(task="embed", segments=((0, 1),)))


@pytest.mark.parametrize("segments", [(), ((1, 1),), ((-1, 2),), ((2, 1),), ((0, 1, 2),), ((0, 1.5),), ((False, 1),)])
def test_wrong_segments_are_refused(segments: Sequence[tuple[int, int]]) -> None:
    with pytest.raises(InputError) as caught:
        PoolingParams(task="embed", segments=tuple(segments)).verify()
    assert caught.value.param == "segments"


def test_other_tasks_have_no_segments() -> None:
    with pytest.raises(InputError, match="does not support 'segments'"):
        PoolingParams(task="classify", segments=((0, 1),)).verify()

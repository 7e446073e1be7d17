"""All rows, the rows of steps, the rows of a listwise reranker: on the host's positions, chunked or whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import LENGTHS, SOME_LENGTHS, Step, hidden_rows, split
from torch import nn

from cenote.errors import EngineError
from cenote.pooling.metadata import PoolingStates
from cenote.pooling.methods.all import AllPool
from cenote.pooling.methods.base import TokenPoolingMethod
from cenote.pooling.methods.jina import JinaForRankingPool
from cenote.pooling.methods.step import StepDefaults, StepPool
from tolerances import assert_close

TAG = 3
STEP_WISHES = st.fixed_dictionaries(
    {
        "step_tag_id": st.sampled_from([None, 1, TAG, 99]),
        "returned_token_ids": st.sampled_from([None, (), (2,), (5, 0), (1, 1, 4)]),
    }
)


def random_ids(lengths: Sequence[int]) -> list[list[int]]:
    rng = np.random.default_rng(len(lengths))
    return [rng.integers(0, 5, length).tolist() for length in lengths]


def assert_rows(actual: Sequence[torch.Tensor | None], expected: Sequence[torch.Tensor]) -> None:
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine is not None
        assert torch.equal(mine, theirs)


def plain_step(rows: torch.Tensor, ids: list[int], tag: int | None, columns: tuple[int, ...] | None) -> torch.Tensor:
    """vLLM's order: columns first, then the rows of the tag."""
    if columns:
        rows = rows[:, list(columns)]
    return rows if tag is None else rows[[token == tag for token in ids]]


@given(lengths=LENGTHS)
def test_all_gives_every_row(lengths: list[int]) -> None:
    rows = hidden_rows(lengths)
    assert_rows(AllPool()(rows, Step(lengths).metadata()), split(rows, lengths))


@given(lengths=LENGTHS, data=st.data())
def test_steps_equal_the_plain_selection(lengths: list[int], data: st.DataObject) -> None:
    wishes = [data.draw(STEP_WISHES) for _ in lengths]
    rows, ids = hidden_rows(lengths), random_ids(lengths)
    step = Step(lengths, task="token_classify", params=wishes, token_ids=ids)
    expected = [
        plain_step(part, tokens, wish["step_tag_id"], wish["returned_token_ids"])
        for part, tokens, wish in zip(split(rows, lengths), ids, wishes, strict=True)
    ]
    assert_rows(StepPool()(rows, step.metadata()), expected)


def test_a_text_without_the_tag_gives_no_rows() -> None:
    pooled = StepPool(defaults=StepDefaults(step_tag_id=TAG, returned_token_ids=(0, 1)))
    step = Step([2, 1], task="token_classify", token_ids=[[1, 2], [TAG]])
    first, second = pooled(hidden_rows([2, 1]), step.metadata())
    assert first is not None
    assert second is not None
    assert (first.shape, second.shape) == ((0, 2), (1, 2))


def test_a_scorer_sees_the_chosen_rows_only() -> None:
    scorer = CountingScorer()
    lengths, ids = [4, 3], [[TAG, 1, 1, TAG], [1, 1, TAG]]
    rows = hidden_rows(lengths, dtype=torch.float16)
    step = Step(
        lengths, task="token_classify", token_ids=ids, params=[{"step_tag_id": TAG, "returned_token_ids": (2,)}] * 2
    )
    pooled = StepPool(scorer)(rows, step.metadata())
    assert scorer.rows == 3
    expected = [
        plain_step(scorer(part.float()), tokens, TAG, (2,))
        for part, tokens in zip(split(rows, lengths), ids, strict=True)
    ]
    for mine, theirs in zip(pooled, expected, strict=True):
        assert mine is not None
        assert_close(mine, theirs, "raw")


class CountingScorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4).requires_grad_(False)
        self.rows = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.rows += len(rows)
        return self.linear(rows)  # type: ignore[no-any-return]


def test_listwise_rows_are_documents_in_order_then_the_query() -> None:
    torch.manual_seed(0)
    projector = nn.Sequential(nn.Linear(6, 3, bias=False), nn.ReLU(), nn.Linear(3, 5, bias=False)).requires_grad_(False)
    pool = JinaForRankingPool(projector)
    assert (pool.doc_token_id, pool.query_token_id) == (151670, 151671)
    ids = [[1, 151671, 2, 151670, 3, 151670], [151670, 151671], [7, 8]]
    lengths = [6, 2, 2]
    rows = hidden_rows(lengths)
    parts = split(rows, lengths)
    pooled = pool(rows, Step(lengths, task="token_embed", token_ids=ids).metadata())
    expected = [parts[0][[3, 5, 1]], parts[1][[0, 1]], parts[2][:0]]
    for mine, theirs in zip(pooled, expected, strict=True):
        assert mine is not None
        assert_close(mine, projector(theirs), "raw")


@pytest.mark.parametrize("make", [AllPool, StepPool, lambda: JinaForRankingPool(nn.Identity(), 1, 2)])
@given(lengths=SOME_LENGTHS, data=st.data())
def test_chunks_are_kept_and_joined(make: Any, lengths: list[int], data: st.DataObject) -> None:
    """Two steps, each sequence cut at random; the first step's buffer is overwritten, as a runner's would be."""
    method: TokenPoolingMethod = make()
    rows, ids = hidden_rows(lengths), random_ids(lengths)
    params: list[dict[str, Any]] = [{"step_tag_id": 1}] * len(lengths) if type(method) is StepPool else []
    wishes: dict[str, Any] = {"task": "token_classify", "params": params or None}
    whole = method(rows, Step(lengths, token_ids=ids, **wishes).metadata())
    cuts = [data.draw(st.integers(1, length)) for length in lengths]
    states = [PoolingStates() for _ in lengths]
    parts = split(rows, lengths)
    first = torch.cat([part[:cut] for part, cut in zip(parts, cuts, strict=True)])
    step = Step(cuts, prompt_lens=lengths, seq_lens=cuts, states=states, token_ids=ids, **wishes)
    found = list(method(first, step.metadata()))
    first.fill_(torch.nan)
    late = [i for i, cut in enumerate(cuts) if cut < lengths[i]]
    assert [i for i, each in enumerate(found) if each is None] == late
    if late:
        rest = Step(
            [lengths[i] - cuts[i] for i in late],
            prompt_lens=[lengths[i] for i in late],
            seq_lens=[lengths[i] for i in late],
            states=[states[i] for i in late],
            token_ids=[ids[i] for i in late],
            task="token_classify",
            params=[params[i] for i in late] if params else None,
        )
        for i, each in zip(late, method(torch.cat([parts[i][cuts[i] :] for i in late]), rest.metadata()), strict=True):
            found[i] = each
    assert_rows(found, [each for each in whole if each is not None])
    assert all(not state.hidden_states_cache for state in states)


def test_rows_are_not_the_runners_memory() -> None:
    rows = hidden_rows([3, 2])
    kept = rows.clone()
    pooled = AllPool()(rows, Step([3, 2]).metadata())
    rows.fill_(torch.nan)
    assert_rows(pooled, split(kept, [3, 2]))


def test_lost_chunks_and_absent_ids_are_errors() -> None:
    with pytest.raises(EngineError, match="4 tokens has 2 hidden states"):
        AllPool()(hidden_rows([2]), Step([2], prompt_lens=[4], seq_lens=[4]).metadata())
    with pytest.raises(EngineError, match="requires_token_ids"):
        StepPool()(hidden_rows([2]), Step([2]).metadata())


@pytest.mark.parametrize("method", [AllPool(), StepPool(), JinaForRankingPool(nn.Identity(), 1, 2)])
def test_token_methods_run_on_a_device_without_values(method: TokenPoolingMethod) -> None:
    meta = torch.device("meta")
    params = [{"step_tag_id": 1, "returned_token_ids": (0, 2)}, {}] if type(method) is StepPool else None
    step = Step([3, 2], task="token_classify", params=params, token_ids=[[1, 0, 1], [2, 1]], device=meta)
    first, second = method(torch.empty(5, 6, device=meta), step.metadata())
    assert first is not None
    assert second is not None
    assert first.device == second.device == meta
    assert method.get_pooling_updates("token_classify").requires_token_ids is not (type(method) is AllPool)

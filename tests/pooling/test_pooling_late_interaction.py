"""MaxSim on packed rows against the plain formula, with ragged documents and several queries in a step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import Step, hidden_rows, split
from torch import nn

from cenote.errors import EngineError
from cenote.params import PoolingParams, QueryVectors
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.embedding import EmbeddingOptions
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from cenote.pooling.max_sim import MAX_QUERY_ROWS, max_sim
from cenote.pooling.methods.all import AllPool
from cenote.pooling.poolers.bos_eos import BOSEOSFilter
from cenote.pooling.poolers.late_interaction import LateInteractionPooler
from cenote.pooling.poolers.lexical import LexicalPooler
from cenote.pooling.poolers.multi_vector import MultiVectorPooler
from tolerances import assert_close

OPTIONS = EmbeddingOptions(DimensionRule(6, ()), normalize=False)


def query(rows: int, seed: int = 9) -> QueryVectors:
    return QueryVectors(hidden_rows([rows], seed=seed).numpy())


def formula(document: torch.Tensor, query: QueryVectors) -> float:
    if not len(document):
        return 0.0
    rows = torch.from_numpy(query.rows_np)
    return sum(max(float(q @ d) for d in document) for q in rows)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 3))
def test_ragged_documents_against_the_formula(lengths: list[int], num_queries: int) -> None:
    documents = split(hidden_rows(lengths), lengths)
    queries = [query(1 + i, seed=i) for i in range(num_queries)]
    chosen = [queries[i % num_queries] for i in range(len(lengths))]
    scores = max_sim(documents, chosen)
    expected = [formula(*pair) for pair in zip(documents, chosen, strict=True)]
    assert [tuple(score.shape) for score in scores] == [(1,)] * len(lengths)
    assert_close(torch.cat(scores), expected, "raw")


@pytest.mark.parametrize("rows", [MAX_QUERY_ROWS - 1, MAX_QUERY_ROWS, MAX_QUERY_ROWS + 1, 3 * MAX_QUERY_ROWS])
def test_long_queries_are_compared_in_parts(rows: int) -> None:
    (document,) = split(hidden_rows([5]), [5])
    long = query(rows)
    assert_close(torch.cat(max_sim([document], [long])), [formula(document, long)], "raw")


def test_sequences_with_and_without_a_query_share_a_step() -> None:
    inner = MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,))
    pooler = LateInteractionPooler(inner)
    lengths, ids = [3, 2, 4], [[5, 1, 5], [5, 5], [1, 2, 3, 5]]
    asked = query(2)
    params = [
        {"query_vectors": asked, "input_type": "document"},
        {},
        {"query_vectors": asked, "input_type": "document"},
    ]
    rows = hidden_rows(lengths)
    metadata = Step(lengths, task="token_embed", params=params, token_ids=ids).metadata()
    scored = pooler(rows, metadata)
    first, second, third = split(rows, lengths)
    assert_close(scored[0], [formula(first[1:2], asked)], "raw")
    assert_close(scored[1], second, "raw")
    assert_close(scored[2], [formula(third[:3], asked)], "raw")
    finished = pooler.finish(scored[0].numpy(), np.array(ids[0]), metadata.pooling_params[0])
    assert_close(finished, scored[0], "raw")


def test_a_document_of_skipped_tokens_scores_zero() -> None:
    inner = MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,))
    params = [{"query_vectors": query(2), "input_type": "document"}] * 2
    metadata = Step([2, 1], task="token_embed", params=params, token_ids=[[5, 5], [1]]).metadata()
    scored = LateInteractionPooler(inner)(hidden_rows([2, 1]), metadata)
    assert float(scored[0]) == 0.0
    assert float(scored[1]) != 0.0


def test_marks_that_a_filter_takes_away_do_not_score() -> None:
    inner = BOSEOSFilter(MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,)), 0, 2)
    asked = query(3)
    params = [{"query_vectors": asked, "input_type": "document"}]
    metadata = Step([4], task="token_embed", params=params, token_ids=[[0, 7, 5, 2]]).metadata()
    rows = hidden_rows([4])
    assert_close(LateInteractionPooler(inner)(rows, metadata)[0], [formula(rows[1:2], asked)], "raw")


def test_unfinished_documents_have_no_score_yet() -> None:
    inner = MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS))
    asked = query(2)
    step = Step([2, 2], task="token_embed", params=[{"query_vectors": asked}] * 2, prompt_lens=[3, 2])
    rows = hidden_rows([2, 2])
    scored = LateInteractionPooler(inner)(rows, step.metadata())
    assert scored[0] is None
    assert_close(scored[1], [formula(rows[2:], asked)], "raw")


def test_the_same_shapes_on_a_device_without_values() -> None:
    inner = MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,))
    params = [{"query_vectors": query(2), "input_type": "document"}] * 2
    meta = torch.device("meta")
    metadata = Step([3, 2], task="token_embed", params=params, token_ids=[[5, 1, 2], [3, 4]], device=meta).metadata()
    scored = LateInteractionPooler(inner)(torch.empty(5, 6, device=meta), metadata)
    assert [(tuple(each.shape), each.device.type) for each in scored] == [((1,), "meta")] * 2


def test_sparse_outputs_have_no_rows_to_compare() -> None:
    torch.manual_seed(0)
    pooler = LateInteractionPooler(LexicalPooler(nn.Linear(6, 1), (0,)))
    params = PoolingParams(task="token_embed", query_vectors=query(1))
    with pytest.raises(EngineError, match="only token embeddings"):
        pooler._kept(torch.ones(2, 1), np.array([1, 2]), params)

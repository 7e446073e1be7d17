"""The rows of a listwise reranker: each document's mark, then the query's."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.step import StepPool, select_rows
from cenote.pooling.packed import TokenRows, map_packed


class JinaForRankingPool(StepPool):
    """Give `projector(row)` in fp32 for each document mark in order, then for each query mark (jina-reranker-v3)."""

    def __init__(self, projector: nn.Module, doc_token_id: int = 151670, query_token_id: int = 151671) -> None:
        super().__init__()
        self.projector = projector
        self.doc_token_id = doc_token_id
        self.query_token_id = query_token_id

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> TokenRows:
        rows = super().forward(hidden_states, pooling_metadata)
        marked = select_rows(rows, [self._marks(ids) for ids in pooling_metadata.get_prompt_token_ids_np()])
        return map_packed(marked, lambda packed, _: self.projector(packed.float()))

    def _marks(self, token_ids_np: IntArray) -> IntArray:
        marks = (np.flatnonzero(token_ids_np == mark) for mark in (self.doc_token_id, self.query_token_id))
        return np.concatenate(list(marks))

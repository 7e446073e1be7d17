"""A token pooler whose rows may leave the device as one score against the vectors of a query (late interaction)."""

from __future__ import annotations

import numpy as np
import torch

from cenote.errors import EngineError
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.max_sim import max_sim
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.step import select_rows
from cenote.pooling.output import PoolerOutput
from cenote.pooling.packed import TokenRows
from cenote.pooling.pooler import FloatArray, PooledResult, Pooler


class LateInteractionPooler(Pooler):
    """Give what the pooler inside gives, and for a sequence whose params have `query_vectors` its MaxSim score `[1]`.

    The rows that `finish` of the pooler inside would leave out of the answer take no part in the score. `None` passes
    through.
    """

    def __init__(self, pooler: Pooler) -> None:
        super().__init__()
        self.pooler = pooler

    def get_supported_tasks(self) -> frozenset[Task]:
        return self.pooler.get_supported_tasks()

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        return self.pooler.get_pooling_updates(task)

    def needs_all_rows(self) -> bool:
        return self.pooler.needs_all_rows()

    def supports_chunks(self) -> bool:
        return self.pooler.supports_chunks()

    def verify_params(self, params: PoolingParams) -> None:
        self.pooler.verify_params(params)

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> PooledResult:
        return rows_np if params.query_vectors is not None else self.pooler.finish(rows_np, token_ids_np, params)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        pooled: TokenRows = list(self.pooler(hidden_states, pooling_metadata))
        params = pooling_metadata.pooling_params
        if all(each.query_vectors is None for each in params):
            return pooled
        kept = select_rows(pooled, list(map(self._kept, pooled, pooling_metadata.token_ids_np, params)))
        asked = [
            (i, rows, query) for i, rows in enumerate(kept) if rows is not None and (query := params[i].query_vectors)
        ]
        scores = max_sim([rows for _, rows, _ in asked], [query for _, _, query in asked])
        for (i, _, _), score in zip(asked, scores, strict=True):
            pooled[i] = score
        return pooled

    def _kept(self, rows: torch.Tensor | None, token_ids_np: IntArray | None, params: PoolingParams) -> IntArray | None:
        """Return the numbers of the rows that count, found by letting the host's half choose among the numbers."""
        if rows is None or params.query_vectors is None:
            return None
        numbers = self.pooler.finish(np.arange(len(rows), dtype=np.float64), token_ids_np, params)
        if not isinstance(numbers, np.ndarray):
            raise EngineError("only token embeddings can be compared with those of a query")
        return None if len(numbers) == len(rows) else numbers.astype(np.int64)

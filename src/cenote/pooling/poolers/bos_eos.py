"""Another token pooler without the rows of the marks at both ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.output import PoolerOutput
from cenote.pooling.packed import TokenRows
from cenote.pooling.pooler import FloatArray, PooledResult, Pooler


@dataclass(frozen=True)
class EndMarks:
    """The tokens whose rows are left out where a text begins or ends with them; -1 leaves nothing out."""

    bos_token_id: int = -1
    eos_token_id: int = -1

    def kept(self, token_ids_np: IntArray) -> slice:
        """Return which rows of a text stay."""
        length = len(token_ids_np)
        start = int(length > 0 and token_ids_np[0] == self.bos_token_id)
        stop = length - int(length > start and token_ids_np[-1] == self.eos_token_id)
        return slice(start, stop)


class BOSEOSFilter(Pooler):
    """Leave out row 0 where its token is `bos_token_id` and the last row where it is `eos_token_id`.

    Rows of one value become plain values: `[n, 1]` -> `[n]`. `None` passes through.
    """

    def __init__(self, pooler: Pooler, bos_token_id: int = -1, eos_token_id: int = -1) -> None:
        super().__init__()
        self.pooler = pooler
        self.marks = EndMarks(bos_token_id, eos_token_id)

    def get_supported_tasks(self) -> frozenset[Task]:
        return self.pooler.get_supported_tasks()

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        return self.pooler.get_pooling_updates(task) | PoolingParamsUpdate(requires_token_ids=True)

    def needs_all_rows(self) -> bool:
        return self.pooler.needs_all_rows()

    def supports_chunks(self) -> bool:
        return self.pooler.supports_chunks()

    def verify_params(self, params: PoolingParams) -> None:
        self.pooler.verify_params(params)

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> PooledResult:
        kept_np = None if token_ids_np is None else np.asarray(token_ids_np)[self.marks.kept(token_ids_np)]
        return self.pooler.finish(rows_np, kept_np, params)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        pooled = self.pooler(hidden_states, pooling_metadata)
        prompts = pooling_metadata.get_prompt_token_ids_np()
        filtered: TokenRows = [
            None if rows is None else _values(rows[self.marks.kept(ids)])
            for rows, ids in zip(pooled, prompts, strict=True)
        ]
        return filtered


def _values(rows: torch.Tensor) -> torch.Tensor:
    return rows.squeeze(-1) if rows.shape[-1] == 1 else rows

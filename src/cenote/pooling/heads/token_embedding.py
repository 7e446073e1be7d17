"""One embedding for each token, with the order and the options of the sequence embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import nn

from cenote.errors import InputError
from cenote.params import OutputDtype, PoolingParams, Task
from cenote.pooling.heads.embedding import EmbeddingOptions, L2Norm
from cenote.pooling.heads.options import RowOptions
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.packed import TokenRows, map_packed, of_present


class TokenEmbeddingPoolerHead(nn.Module):
    """Rows `[n, H]` of each sequence -> `[n, D]`: fp32, Dense modules, cut, L2, and the dtype asked for.

    `None` passes through.
    """

    task: Task = "token_embed"

    def __init__(self, projector: nn.Module, options: EmbeddingOptions) -> None:
        super().__init__()
        self.projector = projector
        self.activation = L2Norm()
        self.options = options

    def verify_params(self, params: PoolingParams) -> None:
        self.options.rule.verify(params.dimensions)
        if params.output_dtype not in (None, *get_args(OutputDtype)):
            raise InputError(
                f"output_dtype must be one of {', '.join(get_args(OutputDtype))}, not {params.output_dtype!r}",
                param="output_dtype",
            )

    def forward(self, pooled_data: TokenRows, pooling_metadata: PoolingMetadata) -> TokenRows:
        present = of_present(pooled_data, pooling_metadata.pooling_params)
        wishes = self.options.of(present)
        finished = map_packed(pooled_data, lambda rows, counts: self._finish(rows, wishes.repeated(counts)))
        if wishes.uniform_dimensions() is None:
            widths = iter(wishes.dimensions_np.tolist())
            finished = [None if rows is None else rows[:, : next(widths)] for rows in finished]
        return _cast(finished, present)

    def _finish(self, rows_NH: torch.Tensor, wishes: RowOptions) -> torch.Tensor:
        return wishes.activate(self.activation, wishes.cut(self.projector(rows_NH.float())))


def _cast(rows: TokenRows, params: Sequence[PoolingParams]) -> TokenRows:
    """Give each sequence's rows the dtype that its params ask for: one operation where all ask for the same."""
    halves = [each.output_dtype == "float16" for each in params]
    if not any(halves):
        return rows
    if all(halves):
        return map_packed(rows, lambda packed, _: packed.half())
    wanted = iter(halves)
    return [None if each is None else each.half() if next(wanted) else each for each in rows]

"""One embedding for each token, with the order and the options of the sequence embedding."""

from __future__ import annotations

import torch
from torch import nn

from cenote.params import PoolingParams, Task
from cenote.pooling.heads.embedding import EmbeddingOptions, L2Norm
from cenote.pooling.heads.options import RowOptions
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.packed import TokenRows, map_packed, of_present


class TokenEmbeddingPoolerHead(nn.Module):
    """Rows `[n, H]` of each sequence -> fp32 `[n, D]`: Dense modules, cut, L2. `None` passes through."""

    task: Task = "token_embed"

    def __init__(self, projector: nn.Module, options: EmbeddingOptions) -> None:
        super().__init__()
        self.projector = projector
        self.activation = L2Norm()
        self.options = options

    def verify_params(self, params: PoolingParams) -> None:
        self.options.rule.verify(params.dimensions)

    def forward(self, pooled_data: TokenRows, pooling_metadata: PoolingMetadata) -> TokenRows:
        wishes = self.options.of(of_present(pooled_data, pooling_metadata.pooling_params))
        finished = map_packed(pooled_data, lambda rows, counts: self._finish(rows, wishes.repeated(counts)))
        if wishes.uniform_dimensions() is not None:
            return finished
        widths = iter(wishes.dimensions_np.tolist())
        return [None if rows is None else rows[:, : next(widths)] for rows in finished]

    def _finish(self, rows_NH: torch.Tensor, wishes: RowOptions) -> torch.Tensor:
        return wishes.activate(self.activation, wishes.cut(self.projector(rows_NH.float())))

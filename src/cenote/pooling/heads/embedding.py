"""Embeddings, in the order that decides the numbers: fp32 -> Dense modules -> cut to `dimensions` -> L2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from cenote.params import PoolingParams, Task
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.options import RowOptions
from cenote.pooling.metadata import PoolingMetadata


class L2Norm(nn.Module):
    """Scale each row to length one; a row of zeros stays zero."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.normalize(rows, p=2.0, dim=-1, eps=1e-12)


@dataclass(frozen=True)
class EmbeddingOptions:
    """How a checkpoint finishes its embeddings: the sizes it allows, whether it normalises, and its usual size."""

    rule: DimensionRule
    normalize: bool
    default_dimensions: int | None = None

    def of(self, params: Sequence[PoolingParams]) -> RowOptions:
        """Return what `params` ask for."""
        return RowOptions.of(params, self.default_dimensions or self.rule.native, self.normalize)


class EmbeddingPoolerHead(nn.Module):
    """Pooled rows `[B, H]` -> embeddings `[B, D]`, a list of vectors where their sizes differ."""

    task: Task = "embed"

    def __init__(self, projector: nn.Module, options: EmbeddingOptions) -> None:
        super().__init__()
        self.projector = projector
        self.activation = L2Norm()
        self.options = options

    def verify_params(self, params: PoolingParams) -> None:
        self.options.rule.verify(params.dimensions)

    def forward(
        self, pooled_data: torch.Tensor, pooling_metadata: PoolingMetadata
    ) -> torch.Tensor | list[torch.Tensor]:
        rows_BD = self.projector(pooled_data.float())
        wishes = self.options.of(pooling_metadata.pooling_params)
        wishes.check_length(pooled_data.shape[0])
        finished_BD = wishes.activate(self.activation, wishes.cut(rows_BD))
        if wishes.uniform_dimensions() is not None or not len(wishes.dimensions_np):
            return finished_BD
        return [row[:width] for row, width in zip(finished_BD.unbind(), wishes.dimensions_np.tolist(), strict=True)]

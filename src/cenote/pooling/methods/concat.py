"""Several sequence methods side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod


class ConcatPool(SequencePoolingMethod):
    """Pool with each of `methods` and join the results in that order: fp32 `[B, H * len(methods)]`."""

    def __init__(self, methods: Sequence[SequencePoolingMethod]) -> None:
        super().__init__()
        self.methods = nn.ModuleList(methods)
        self.needs_all_rows = any(method.needs_all_rows for method in methods)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        return torch.cat([method(hidden_states, pooling_metadata).float() for method in self.methods], dim=-1)

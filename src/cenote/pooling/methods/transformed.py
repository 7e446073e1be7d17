"""A module on every row first, then a sequence method."""

from __future__ import annotations

import torch
from torch import nn

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod


class TransformedPool(SequencePoolingMethod):
    """Pool `module(rows)`, computed in fp32, for heads whose first layer works on tokens and not on the pooled row."""

    def __init__(self, module: nn.Module, method: SequencePoolingMethod) -> None:
        super().__init__()
        self.module = module
        self.method = method
        self.needs_all_rows = method.needs_all_rows

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        pooled: torch.Tensor = self.method(self.module(hidden_states.float()), pooling_metadata)
        return pooled

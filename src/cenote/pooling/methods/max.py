"""The largest value of each column."""

from __future__ import annotations

import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod, refuse_partial_prefill
from cenote.pooling.segments import Segments


class MaxPool(SequencePoolingMethod):
    """Take each column's maximum over the rows of a sequence, zero where a skipped prompt leaves no row."""

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "MAX pooling")
        return Segments.of(pooling_metadata).reduce(hidden_states, "max")

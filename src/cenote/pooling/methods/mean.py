"""The mean of each sequence's rows."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod, refuse_partial_prefill
from cenote.pooling.segments import Segments, per_sequence


class MeanPool(SequencePoolingMethod):
    """Average all rows of a sequence, special tokens included, in fp32.

    The sum is divided by `max(rows, 1e-9)`, so a sequence that is all skipped prompt gives zeros, as in
    sentence-transformers.
    """

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "MEAN pooling")
        segments = Segments.of(pooling_metadata)
        counts_np = np.maximum(segments.lengths_np, 1e-9)
        return segments.reduce(hidden_states) / per_sequence(counts_np, hidden_states.device)

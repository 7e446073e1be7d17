"""The mean of each sequence's rows, later rows counting more."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod, refuse_partial_prefill
from cenote.pooling.segments import Segments, per_sequence


class WeightedMeanPool(SequencePoolingMethod):
    """sentence-transformers' `weightedmean` (SGPT): row `i` of the sequence, counted from 1, weighs `i`, in fp32."""

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "weighted-mean pooling")
        segments = Segments.of(pooling_metadata)
        weights_np = segments.ranks_np + np.repeat(segments.skipped_np, segments.lengths_np) + 1
        first_np, last_np = segments.skipped_np + 1, segments.skipped_np + segments.lengths_np
        totals_np = np.maximum((first_np + last_np) * segments.lengths_np / 2, 1e-9)
        sums_BH = segments.reduce(hidden_states, weights_np=weights_np.astype(np.float32))
        return sums_BH / per_sequence(totals_np, hidden_states.device)

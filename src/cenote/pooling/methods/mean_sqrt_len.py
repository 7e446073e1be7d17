"""The sum of each sequence's rows over the root of their number."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod, refuse_partial_prefill
from cenote.pooling.segments import Segments, per_sequence


class MeanSqrtLenPool(SequencePoolingMethod):
    """sentence-transformers' `mean_sqrt_len_tokens`, in fp32."""

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "mean-sqrt-len pooling")
        segments = Segments.of(pooling_metadata)
        roots_np = np.sqrt(np.maximum(segments.lengths_np, 1e-9))
        return segments.reduce(hidden_states) / per_sequence(roots_np, hidden_states.device)

"""The first row of each sequence."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod, refuse_partial_prefill
from cenote.pooling.segments import num_skipped_tokens
from cenote.transfer import async_tensor_h2d


class CLSPool(SequencePoolingMethod):
    """Take the first row that is not part of a skipped prompt, in the model's dtype.

    A sequence that is all prompt gives its very first row, as in sentence-transformers.
    """

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "CLS pooling")
        cursor = pooling_metadata.get_pooling_cursor()
        indices = cursor.first_token_indices_gpu
        skipped_np = num_skipped_tokens(pooling_metadata)
        if skipped_np.any():
            inside_np = np.where(skipped_np < cursor.num_scheduled_tokens_cpu.numpy(), skipped_np, 0)
            indices = indices + async_tensor_h2d(inside_np, hidden_states.device)
        return hidden_states.index_select(0, indices)

"""The last row of each sequence."""

from __future__ import annotations

import torch

from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod


class LastPool(SequencePoolingMethod):
    """Take the last row of the step, in the model's dtype. The last chunk of a sequence is the one that counts."""

    needs_all_rows = False

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        return hidden_states.index_select(0, pooling_metadata.get_pooling_cursor().last_token_indices_gpu)

"""All rows of each sequence."""

from __future__ import annotations

import torch

from cenote.pooling.chunks import join_chunks, keep_chunk
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import TokenPoolingMethod


class AllPool(TokenPoolingMethod):
    """Give every row, in the model's dtype. Chunks of an unfinished sequence are kept, and joined when it finishes.

    The rows are copies: a next step may write to the hidden states while these are still on their way to the host.
    """

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> list[torch.Tensor | None]:
        cursor = pooling_metadata.get_pooling_cursor()
        counts = cursor.num_scheduled_tokens_cpu.tolist()
        if not cursor.is_partial_prefill():
            return list(torch.split(hidden_states.clone(), counts))
        rows: list[torch.Tensor | None] = []
        prompt_lens = cursor.prompt_lens_cpu.tolist()
        for index, chunk in enumerate(torch.split(hidden_states, counts)):
            state = pooling_metadata.pooling_states[index]
            keep_chunk(state, chunk)
            rows.append(join_chunks(state, prompt_lens[index]) if cursor.get_finished_mask()[index] else None)
        return rows

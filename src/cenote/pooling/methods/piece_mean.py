"""The mean of each piece of a sequence: late chunking."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.base import TokenPoolingMethod, refuse_partial_prefill
from cenote.pooling.packed import TokenRows
from cenote.pooling.segments import Segments, per_sequence


class PieceMeanPool(TokenPoolingMethod):
    """Average the rows of each of a sequence's `segments`, in fp32: `[k, H]`, in their order.

    A sequence without segments has one piece, all of its rows, as `MeanPool` takes them. The rows are chosen on the
    host, which knows their number; one segment sum covers the step.
    """

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> TokenRows:
        refuse_partial_prefill(pooling_metadata, "late chunking")
        bounds = _bounds(pooling_metadata)
        starts_np, stops_np = np.concatenate(bounds).T
        lengths_np = stops_np - starts_np
        pieces = Segments(starts_np, lengths_np, np.zeros_like(starts_np))
        counts_np = np.maximum(lengths_np, 1e-9)
        means_NH = pieces.reduce(hidden_states) / per_sequence(counts_np, hidden_states.device)
        return list(torch.split(means_NH, [len(each) for each in bounds]))


def _bounds(pooling_metadata: PoolingMetadata) -> list[IntArray]:
    """Return the rows of the step, from and to `[k, 2]`, that each sequence's pieces have."""
    whole = Segments.of(pooling_metadata)
    firsts_np = whole.starts_np - whole.skipped_np
    return [
        np.array([[start, start + length]] if params.segments is None else params.segments, dtype=np.int64)
        + (0 if params.segments is None else first)
        for params, first, start, length in zip(
            pooling_metadata.pooling_params, firsts_np, whole.starts_np, whole.lengths_np, strict=True
        )
    ]

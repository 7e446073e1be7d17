"""Sums and maxima over the rows of each sequence, with every extent known on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.transfer import async_tensor_h2d


def num_skipped_tokens(pooling_metadata: PoolingMetadata) -> IntArray:
    """Return how many leading rows of each sequence stay out of the pooling, `[B]`."""
    return np.array([params.num_skipped_tokens for params in pooling_metadata.pooling_params], dtype=np.int64)


@dataclass(frozen=True)
class Segments:
    """The packed rows that each of `B` sequences, or pieces of them, pools: `lengths_np` from each of `starts_np`."""

    starts_np: IntArray
    lengths_np: IntArray
    skipped_np: IntArray
    """rows left out before each start"""

    @classmethod
    def of(cls, pooling_metadata: PoolingMetadata) -> Segments:
        """Read the segments of whole sequences. A prompt that is skipped may leave a sequence without rows."""
        lengths_np = pooling_metadata.get_pooling_cursor().num_scheduled_tokens_cpu.numpy()
        skipped_np = np.minimum(num_skipped_tokens(pooling_metadata), lengths_np)
        return cls(np.cumsum(lengths_np) - lengths_np + skipped_np, lengths_np - skipped_np, skipped_np)

    @property
    def ranks_np(self) -> IntArray:
        """Each pooled row's place in its segment: 0, 1, 2, ... and again from 0."""
        ends_np = np.cumsum(self.lengths_np)
        return np.arange(ends_np[-1] if len(ends_np) else 0) - np.repeat(ends_np - self.lengths_np, self.lengths_np)

    def reduce(
        self, rows_TH: torch.Tensor, mode: str = "sum", weights_np: npt.NDArray[np.float32] | None = None
    ) -> torch.Tensor:
        """Return fp32 `[B, H]`: the `sum` or `max` of each segment's rows, zero where it has none.

        `weights_np` has a factor for each pooled row. One `embedding_bag` does it, in the order of the rows: without
        atomics, so a text's numbers are the same bits in any company, and without a `[B, T]` matrix. Rows of another
        dtype are widened first, which takes `4 T H` bytes.
        """
        device = rows_TH.device
        if not len(self.lengths_np):
            return rows_TH.new_empty((0, rows_TH.shape[1]), dtype=torch.float32)
        offsets_np = np.cumsum(self.lengths_np) - self.lengths_np
        weights = None if weights_np is None else async_tensor_h2d(weights_np, device)
        return functional.embedding_bag(
            self._row_indices(device),
            rows_TH.float(),
            async_tensor_h2d(offsets_np, device),
            mode=mode,
            per_sample_weights=weights,
        )

    def _row_indices(self, device: torch.device) -> torch.Tensor:
        if np.array_equal(self.starts_np, np.cumsum(self.lengths_np) - self.lengths_np):
            return torch.arange(int(self.lengths_np.sum()), device=device)
        return async_tensor_h2d(np.repeat(self.starts_np, self.lengths_np) + self.ranks_np, device)


def per_sequence(values_np: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """Return `[B]` host values as an fp32 column `[B, 1]` on `device`."""
    return async_tensor_h2d(values_np.astype(np.float32), device).unsqueeze(1)

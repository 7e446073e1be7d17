"""The one batch type: texts laid end to end, nothing padded.

Shape suffixes: T packed tokens, B sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cenote.models.context import Context, EarlierChunks
from cenote.transfer import async_tensor_h2d

IntArray = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Neighbouring sequences of one shape: `num_seqs` of `length` rows each, starting at row `start`.

    The first `num_keys` rows of each are visible to the others as keys, and the rows of `context` to all of them.
    """

    start: int
    num_seqs: int
    length: int
    num_keys: int
    context: Context | None = None

    @property
    def num_context_rows(self) -> int:
        return 0 if self.context is None else self.context.num_rows

    def follows(self, other: Run) -> bool:
        """Return whether both can be one run."""
        shape, other_shape = (self.length, self.num_keys), (other.length, other.num_keys)
        return shape == other_shape and self.context is other.context and not isinstance(self.context, EarlierChunks)


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """One step's tokens on the device, and the host's facts about them.

    `seq_lens_np` counts the rows of each sequence in this step; `num_keys_np` counts those that other rows may attend
    to (fewer than the rows only for query expansion that is not attended to). `positions_T` already carries the
    family's position offset. `contexts` are the rows before each sequence's own, where any has some.
    """

    input_ids_T: torch.Tensor
    positions_T: torch.Tensor
    token_type_ids_T: torch.Tensor | None
    cu_seqlens: torch.Tensor
    """int32 `[B + 1]` on the device"""
    seq_lens_np: IntArray
    num_keys_np: IntArray
    contexts: tuple[Context | None, ...] | None = None

    @property
    def num_tokens(self) -> int:
        return int(self.input_ids_T.shape[0])

    @property
    def num_seqs(self) -> int:
        return len(self.seq_lens_np)

    @cached_property
    def max_seq_len(self) -> int:
        return int(self.seq_lens_np.max(initial=0))

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Neighbouring sequences of equal length, equal number of keys and the same context, joined."""
        runs: list[Run] = []
        start = 0
        contexts = self.contexts or (None,) * self.num_seqs
        for length, num_keys, context in zip(
            self.seq_lens_np.tolist(), self.num_keys_np.tolist(), contexts, strict=True
        ):
            run = Run(start, 1, length, num_keys, context)
            if runs and run.follows(runs[-1]):
                runs[-1] = runs[-1]._replace(num_seqs=runs[-1].num_seqs + 1)
            else:
                runs.append(run)
            start += length
        return tuple(runs)


def pack(
    sequences: Sequence[Sequence[int]],
    *,
    device: torch.device,
    position_offset: int = 0,
    token_type_ids: Sequence[Sequence[int]] | None = None,
    num_keys: Sequence[int] | None = None,
    contexts: Sequence[Context | None] | None = None,
) -> PackedBatch:
    """Lay token ids end to end outside the runtime, which stages its own batches. `num_keys` is all rows by default."""
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    flat = np.array([token for ids in sequences for token in ids], dtype=np.int64)
    ends = np.cumsum(lengths)
    first = np.array([0 if context is None else context.num_rows for context in contexts or [None] * len(lengths)])
    positions = np.arange(len(flat)) - np.repeat(ends - lengths - first, lengths) + position_offset
    types = None
    if token_type_ids is not None:
        types = async_tensor_h2d(np.array([t for ids in token_type_ids for t in ids], dtype=np.int64), device)
    return PackedBatch(
        input_ids_T=async_tensor_h2d(flat, device),
        positions_T=async_tensor_h2d(positions, device),
        token_type_ids_T=types,
        cu_seqlens=async_tensor_h2d(np.concatenate([[0], ends]).astype(np.int32), device),
        seq_lens_np=lengths,
        num_keys_np=lengths if num_keys is None else np.array(num_keys, dtype=np.int64),
        contexts=None if contexts is None else tuple(contexts),
    )

"""SPLADE: a sparse vector of vocabulary size from the masked-language head, one tile of its logits at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from cenote.checkpoint.spec import SpladeSpec
from cenote.errors import CheckpointError
from cenote.outputs import SparseVector
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.base import refuse_partial_prefill
from cenote.pooling.origin import Origin
from cenote.pooling.pooler import FloatArray, Pooler
from cenote.pooling.poolers.bos_eos import EndMarks

TILE_BYTES = 32 * 2**20
"""The largest piece of fp32 logits that is ever there."""


class Piece(NamedTuple):
    """Part of a tile: `num_seqs` sequences from `first_seq` on, with `length` rows each, from row `start` on."""

    first_seq: int
    num_seqs: int
    start: int
    length: int


class SPLADESparsePooler(Pooler):
    """Pool `log1p(relu(logits))` of each sequence's rows by `max` or `sum`: fp32 `[B, V]`.

    The logits `[T, V]` are never whole. Beyond the answer `[B, V]` and the head's own activations of a tile, there is
    one tile of at most `max(TILE_BYTES, 4 V)` bytes in fp32 and one in the model's dtype. `max` pools the logits
    first, which is exact, since the activation is monotone. Rows of special tokens count, as in sentence-transformers,
    but for those that the spec names at the start and the end.
    """

    def __init__(self, masked_lm_head: nn.Module, spec: SpladeSpec) -> None:
        super().__init__()
        self.masked_lm_head = masked_lm_head
        self.spec = spec
        self.tile_rows = max(1, TILE_BYTES // (4 * spec.vocab_size))
        self._marks = EndMarks(
            -1 if spec.skip_first_token_id is None else spec.skip_first_token_id,
            -1 if spec.skip_last_token_id is None else spec.skip_last_token_id,
        )

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset({"embed_sparse"})

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:  # noqa: ARG002 - one task
        return PoolingParamsUpdate(requires_token_ids=self._skips())

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        refuse_partial_prefill(pooling_metadata, "SPLADE")
        starts_np, stops_np = self._kept_rows(pooling_metadata)
        pooled_BV = hidden_states.new_zeros((len(starts_np), self.spec.vocab_size), dtype=torch.float32)
        for first_row in range(0, hidden_states.shape[0], self.tile_rows):
            rows = hidden_states[first_row : first_row + self.tile_rows]
            self._pool_tile(pooled_BV, self.masked_lm_head(rows), starts_np - first_row, stops_np - first_row)
        return pooled_BV if self.spec.pooling == "sum" else self._activate(pooled_BV)

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> SparseVector:  # noqa: ARG002
        indices_np = np.flatnonzero(rows_np)
        return SparseVector(indices=indices_np.astype(np.int64), values=rows_np[indices_np].astype(np.float32))

    def _pool_tile(
        self, pooled_BV: torch.Tensor, logits_NV: torch.Tensor, starts_np: IntArray, stops_np: IntArray
    ) -> None:
        """Add a tile's rows to the sequences that they belong to; zeros stand for no logit above zero."""
        if self.spec.pooling == "sum":
            logits_NV = self._activate(logits_NV.float())
        for piece in _pieces(np.maximum(starts_np, 0), np.minimum(stops_np, logits_NV.shape[0])):
            block = logits_NV[piece.start : piece.start + piece.num_seqs * piece.length]
            rows_BLV = block.view(piece.num_seqs, piece.length, -1)
            target = pooled_BV[piece.first_seq : piece.first_seq + piece.num_seqs]
            if self.spec.pooling == "sum":
                target += rows_BLV.sum(dim=1)
            else:
                torch.maximum(target, rows_BLV.amax(dim=1).float(), out=target)

    def _activate(self, logits: torch.Tensor) -> torch.Tensor:
        activated = logits.relu_().log1p_()
        return activated.log1p_() if self.spec.activation == "log1p_relu" else activated

    def _skips(self) -> bool:
        return self._marks != EndMarks()

    def _kept_rows(self, pooling_metadata: PoolingMetadata) -> tuple[IntArray, IntArray]:
        """Return where each sequence's counting rows start and stop among the packed ones."""
        lengths_np = pooling_metadata.get_pooling_cursor().num_scheduled_tokens_cpu.numpy()
        firsts_np = np.cumsum(lengths_np) - lengths_np
        if not self._skips():
            return firsts_np, firsts_np + lengths_np
        kept = [self._marks.kept(ids) for ids in pooling_metadata.get_prompt_token_ids_np()]
        inner_np = np.array([(part.start, part.stop) for part in kept], dtype=np.int64).reshape(-1, 2)
        return firsts_np + inner_np[:, 0], firsts_np + inner_np[:, 1]


def _pieces(starts_np: IntArray, stops_np: IntArray) -> Iterator[Piece]:
    """Yield a tile's sequences, neighbours of equal length with nothing between them as one piece."""
    piece: Piece | None = None
    for index in np.flatnonzero(stops_np > starts_np).tolist():
        single = Piece(index, 1, int(starts_np[index]), int(stops_np[index] - starts_np[index]))
        if piece is not None and _continues(piece, single):
            piece = piece._replace(num_seqs=piece.num_seqs + 1)
            continue
        if piece is not None:
            yield piece
        piece = single
    if piece is not None:
        yield piece


def _continues(piece: Piece, single: Piece) -> bool:
    """Return whether a sequence lies right behind a piece; there is none between them, since each has a row."""
    return (single.start, single.length) == (piece.start + piece.num_seqs * piece.length, piece.length)


def pooler_for_splade(spec: SpladeSpec, origin: Origin) -> SPLADESparsePooler:
    """Build the sparse embedding from the masked-language head that the model has."""
    if origin.model.masked_lm_head is None:
        raise CheckpointError(f"the model of {origin.spec.name} has no masked-language head")
    return SPLADESparsePooler(origin.model.masked_lm_head, spec)

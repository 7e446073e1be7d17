"""Small steps on a GPU replayed as CUDA graphs: launching their kernels one by one takes longer than running them.

A graph has fixed shapes, so there is one for each bucket of tokens. A step is laid into its bucket's buffers; the rows
left over are one dummy sequence, cut off before anything is pooled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from cenote.models.batch import PackedBatch

BUCKETS = (32, 64, 128, 256, 512)
"""Tokens of the steps that are replayed; larger ones keep a GPU busy by themselves."""

Capture = Callable[[Callable[[], torch.Tensor]], tuple[torch.Tensor, Callable[[], None]]]
"""Record what a call launches; return the tensor that it fills, and the replay that fills it again."""


@dataclass(frozen=True, eq=False)
class _Graph:
    batch: PackedBatch
    hidden_TH: torch.Tensor
    replay: Callable[[], None]

    def run(self, batch: PackedBatch) -> torch.Tensor:
        """Return the hidden states of `batch`: a view that is good until the next replay is launched."""
        num_tokens, num_seqs, own = batch.num_tokens, batch.num_seqs, self.batch
        own.input_ids_T[:num_tokens].copy_(batch.input_ids_T)
        own.positions_T[:num_tokens].copy_(batch.positions_T)
        if own.token_type_ids_T is not None:
            own.token_type_ids_T.zero_()
            if batch.token_type_ids_T is not None:
                own.token_type_ids_T[:num_tokens].copy_(batch.token_type_ids_T)
        own.cu_seqlens[: num_seqs + 1].copy_(batch.cu_seqlens)
        own.cu_seqlens[num_seqs + 1 :].fill_(own.num_tokens)
        self.replay()
        return self.hidden_TH[:num_tokens]


class GraphedBackbone(nn.Module):
    """Run `backbone` by replaying a graph where the step is small and plain, and as it is where it is not."""

    def __init__(self, backbone: nn.Module, *, uses_token_types: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self._uses_token_types = uses_token_types
        self._graphs: dict[int, _Graph] = {}

    def capture(self, device: torch.device, capture: Capture) -> None:
        """Record every bucket, the largest first, so that the smaller ones share its memory.

        Call it before the largest step is tried: the memory that the graphs keep is then already taken.
        """
        for bucket in sorted(BUCKETS, reverse=True):
            batch = _bucket_batch(bucket, device, self._uses_token_types)
            hidden_TH, replay = capture(lambda batch=batch: self.backbone(batch))  # type: ignore[misc]
            self._graphs[bucket] = _Graph(batch, hidden_TH, replay)

    def forward(self, batch: PackedBatch) -> torch.Tensor:
        graph = self._graph_for(batch)
        hidden_TH: torch.Tensor = self.backbone(batch) if graph is None else graph.run(batch)
        return hidden_TH

    def _graph_for(self, batch: PackedBatch) -> _Graph | None:
        if batch.contexts is not None or not np.array_equal(batch.num_keys_np, batch.seq_lens_np):
            return None
        fitting = [bucket for bucket in self._graphs if bucket >= batch.num_tokens]
        return self._graphs[min(fitting)] if fitting else None


def _bucket_batch(bucket: int, device: torch.device, uses_token_types: bool) -> PackedBatch:
    """Return a batch of one dummy sequence, with room for as many sequences as tokens."""
    zeros = torch.zeros(bucket, dtype=torch.int64, device=device)
    cu_seqlens = torch.full((bucket + 1,), bucket, dtype=torch.int32, device=device)
    cu_seqlens[:1].zero_()
    return PackedBatch(
        input_ids_T=zeros.clone(),
        positions_T=zeros.clone(),
        token_type_ids_T=zeros.clone() if uses_token_types else None,
        cu_seqlens=cu_seqlens,
        seq_lens_np=np.array([bucket], dtype=np.int64),
        num_keys_np=np.array([bucket], dtype=np.int64),
    )

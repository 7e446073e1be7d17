"""The padded path, for DeBERTa, whose attention knows no packs: sub-batches of near-equal length.

Every index is computed on the host and goes up once for each step. The rows come back packed, so poolers never see
padding. Shape suffixes: T packed tokens, N texts of a sub-batch, L its longest, P rows of all sub-batches with padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from cenote.models.batch import IntArray, PackedBatch
from cenote.transfer import async_tensor_h2d

_MIN_FILL = 0.8
"""Shortest text of a sub-batch, as a part of its longest."""


@dataclass(frozen=True, kw_only=True)
class PaddedLayout:
    """Where rows go: computed on the host from lengths alone."""

    shapes: tuple[tuple[int, int], ...]
    """`(N, L)` of each sub-batch"""
    gather_np: IntArray
    """`[P]`: the packed row that each padded row holds; padding repeats row 0 of its text"""
    is_key_np: IntArray
    """`[P]`: 1 where other rows may attend to the padded row"""
    flatten_np: IntArray
    """`[T]`: the padded row that each packed row came from"""


def plan_layout(lengths_np: IntArray, num_keys_np: IntArray) -> PaddedLayout:
    """Sort the texts by length, cut them into sub-batches and say where each row goes. Pure."""
    starts = np.cumsum(lengths_np) - lengths_np
    flatten = np.empty(int(lengths_np.sum()), dtype=np.int64)
    shapes: list[tuple[int, int]] = []
    gather: list[IntArray] = []
    keys: list[IntArray] = []
    base = 0
    for group in _groups(lengths_np):
        longest = int(lengths_np[group[0]])
        columns = np.arange(longest)
        inside = columns < lengths_np[group, None]
        rows = starts[group, None] + np.where(inside, columns, 0)
        flatten[rows[inside]] = base + np.flatnonzero(inside)
        shapes.append((len(group), longest))
        gather.append(rows.ravel())
        keys.append((columns < num_keys_np[group, None]).astype(np.int64).ravel())
        base += rows.size
    return PaddedLayout(
        shapes=tuple(shapes), gather_np=np.concatenate(gather), is_key_np=np.concatenate(keys), flatten_np=flatten
    )


def _groups(lengths_np: IntArray) -> list[IntArray]:
    """Cut the texts, longest first, where one is much shorter than the first of its group."""
    order = np.argsort(-lengths_np, kind="stable")
    cuts, longest = [], int(lengths_np[order[0]])
    for place, length in enumerate(lengths_np[order].tolist()):
        if length < _MIN_FILL * longest:
            cuts.append(place)
            longest = length
    return np.split(order, cuts)


class PaddedBackbone(nn.Module):
    """Run a DeBERTa over padded sub-batches: `PackedBatch` to packed hidden states `[T, H]`."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.takes_relative_positions = model.config.relative_attention

    def forward(self, batch: PackedBatch) -> torch.Tensor:
        layout = plan_layout(batch.seq_lens_np, batch.num_keys_np)
        device = batch.input_ids_T.device
        gather_P = async_tensor_h2d(layout.gather_np, device)
        inputs = {"input_ids": batch.input_ids_T, "position_ids": batch.positions_T}
        if batch.token_type_ids_T is not None:
            inputs["token_type_ids"] = batch.token_type_ids_T
        sizes = [num_seqs * longest for num_seqs, longest in layout.shapes]
        padded = {name: torch.split(ids.index_select(0, gather_P), sizes) for name, ids in inputs.items()}
        masks = torch.split(async_tensor_h2d(layout.is_key_np, device), sizes)
        distances = self._distances(layout.shapes[0][1], device)
        outputs = [
            self._run(
                {name: parts[place].view(shape) for name, parts in padded.items()}, masks[place].view(shape), distances
            )
            for place, shape in enumerate(layout.shapes)
        ]
        flatten_T = async_tensor_h2d(layout.flatten_np, device)
        return torch.cat(outputs).index_select(0, flatten_T)

    def _run(
        self, inputs: dict[str, torch.Tensor], is_key_NL: torch.Tensor, distances: torch.Tensor | None
    ) -> torch.Tensor:
        """Run one sub-batch through the two parts of the model: its own forward takes no relative positions."""
        embedded_NLH = self.model.embeddings(**inputs, mask=is_key_NL)
        positions = None if distances is None else _relative_positions(distances, is_key_NL.shape[1])
        encoded = self.model.encoder(embedded_NLH, is_key_NL, output_hidden_states=False, relative_pos=positions)
        hidden_NLH: torch.Tensor = encoded.last_hidden_state
        return hidden_NLH.flatten(0, 1)

    def _distances(self, longest: int, device: torch.device) -> torch.Tensor | None:
        """Return the relative position of every distance from `1 - longest` to `longest - 1`, worked out on the host.

        DeBERTa would otherwise build its relative positions with scalars copied up in mid-step.
        """
        if not self.takes_relative_positions:
            return None
        encoder: Any = self.model.encoder
        distances = torch.arange(1 - longest, longest)
        if encoder.position_buckets > 0 and encoder.max_relative_positions > 0:
            distances = make_log_bucket_position(distances, encoder.position_buckets, encoder.max_relative_positions)
        return async_tensor_h2d(distances.to(torch.int64), device)


def _relative_positions(distances: torch.Tensor, length: int) -> torch.Tensor:
    """Return `[1, L, L]`: the relative position of each key to each row, from those of all distances."""
    rows = torch.arange(length, device=distances.device)
    places = rows[:, None] - rows + distances.shape[0] // 2
    return distances.index_select(0, places.flatten()).view(1, length, length)

"""The slow truth about packed attention: one explicit softmax over the whole pack under a block-diagonal mask."""

from __future__ import annotations

import math

import numpy as np
import torch

from cenote.models.attention_step import LayerAttention
from cenote.models.batch import PackedBatch


def attend_reference(
    batch: PackedBatch, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention
) -> torch.Tensor:
    """Compute what `attend` does, in `O(T^2)` memory: `[A, T, D]`, `[G, T, D]`, `[G, T, D]` to `[T, A, D]`."""
    groups = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(groups, dim=0), value.repeat_interleave(groups, dim=0)
    scores = query.double() @ key.double().transpose(1, 2) * layer.scaling
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    sequence, offset = _places(batch)
    if layer.bias is not None:
        scores = scores + layer.bias[0][:, offset][:, :, offset].double()
    scores = scores.masked_fill(~_visible(batch, sequence, offset, layer), -math.inf)
    return (scores.softmax(dim=-1) @ value.double()).transpose(0, 1).to(query.dtype)


def _places(batch: PackedBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which text each row belongs to, and which row of that text it is."""
    lengths = batch.seq_lens_np
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    offset = np.arange(lengths.sum()) - starts[sequence]
    return torch.from_numpy(sequence), torch.from_numpy(offset)


def _visible(batch: PackedBatch, sequence: torch.Tensor, offset: torch.Tensor, layer: LayerAttention) -> torch.Tensor:
    """Return the bool mask `[T, T]`: row i sees key j."""
    is_key = offset < torch.from_numpy(batch.num_keys_np)[sequence]
    same_text = (sequence[:, None] == sequence[None, :]) & is_key[None, :]
    distance = offset[:, None] - offset[None, :]
    visible = same_text & (distance >= 0) if layer.causal else same_text
    if layer.window is None:
        return visible
    windowed = visible & (distance.abs() < layer.window)
    return torch.where(windowed.any(dim=-1, keepdim=True), windowed, same_text)

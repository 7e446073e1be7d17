"""What the layers of one forward share: the batch, the attention path, and masks, built once for each shape.

Shape suffixes: T packed tokens, B sequences, L rows of a run, K keys of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from cenote.models.attention_path import AttentionPath
from cenote.models.batch import PackedBatch, Run
from cenote.transfer import async_tensor_h2d

STEP_KEYWORD = "attention_step"
"""The keyword under which a model's forward hands the `AttentionStep` down to every layer."""


@dataclass(frozen=True, kw_only=True)
class LayerAttention:
    """What one layer asks for. `window` W lets row i see row j where |i - j| < W; `None` is no window."""

    scaling: float
    causal: bool
    window: int | None = None
    softcap: float | None = None
    bias: torch.Tensor | None = None
    """`[1, A, L, L]` for the longest text; shorter texts take its upper left corner"""
    index: int = 0
    """Which layer of the model this is"""


class AttentionStep:
    """What all layers of one forward share: the batch, the path, and masks, built once for each shape."""

    def __init__(self, batch: PackedBatch, path: AttentionPath) -> None:
        self.batch = batch
        self.path = path
        self._masks: dict[_MaskShape, torch.Tensor] = {}
        self._num_keys: torch.Tensor | None = None
        self._cu_keys: torch.Tensor | None = None

    def mask(self, run: Run, layer: LayerAttention) -> torch.Tensor | None:
        """Return the bool mask `[L, K]` of a run, or `None` where every row sees every key or causality is all."""
        before = run.num_context_rows
        window = layer.window if layer.window is not None and layer.window < before + run.length else None
        if window is None and (not layer.causal or run.num_keys == run.length) and (not before or run.length == 1):
            return None
        shape = _MaskShape(run.length, run.num_keys, before, layer.causal, window)
        if shape not in self._masks:
            self._masks[shape] = _build_mask(shape, device=self.batch.input_ids_T.device)
        return self._masks[shape]

    def num_keys(self) -> torch.Tensor | None:
        """Return the int32 `[B]` numbers of keys on the device, or `None` where every row is a key."""
        if np.array_equal(self.batch.num_keys_np, self.batch.seq_lens_np):
            return None
        if self._num_keys is None:
            device = self.batch.input_ids_T.device
            self._num_keys = async_tensor_h2d(self.batch.num_keys_np.astype(np.int32), device)
        return self._num_keys

    def cu_keys(self) -> tuple[torch.Tensor, int]:
        """Return the cumulated numbers of keys with contexts, int32 `[B + 1]` on the device, and the largest number."""
        batch = self.batch
        if batch.contexts is None:
            return batch.cu_seqlens, batch.max_seq_len
        before = [0 if context is None else context.num_rows for context in batch.contexts]
        lengths = batch.seq_lens_np + np.array(before)
        if self._cu_keys is None:
            ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            self._cu_keys = async_tensor_h2d(ends, batch.input_ids_T.device)
        return self._cu_keys, int(lengths.max())


class _MaskShape(NamedTuple):
    """What a mask `[length, num_context_rows + num_keys]` depends on."""

    length: int
    num_keys: int
    num_context_rows: int
    causal: bool
    window: int | None


def _build_mask(shape: _MaskShape, *, device: torch.device) -> torch.Tensor:
    before, num_keys = shape.num_context_rows, shape.num_context_rows + shape.num_keys
    rows = torch.arange(before, before + shape.length, device=device)
    distance = rows[:, None] - torch.arange(num_keys, device=device)
    mask = distance >= 0 if shape.causal else torch.ones_like(distance, dtype=torch.bool)
    if shape.window is not None:
        mask &= distance.abs() < shape.window
    if shape.num_keys < shape.length and shape.window is not None:
        # Rows far behind the last key see none within the window; softmax over nothing would be NaN.
        mask |= ~mask.any(dim=-1, keepdim=True)
    return mask

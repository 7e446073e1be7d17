"""Packed attention: texts laid end to end, each attends only to itself.

transformers calls `packed_attention` through its `AttentionInterface`. No mask function is registered under the name:
transformers then builds no masks, which costs memory and, for some models, a copy back from the device.

Shape suffixes: T packed tokens, N texts of one run, L rows of each, K keys of each, A query heads, G key heads, D head.
Nothing here reads a device tensor on the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from cenote.models.attention_path import AttentionPath
from cenote.models.batch import PackedBatch, Run
from cenote.transfer import async_tensor_h2d

ATTENTION_NAME = "cenote_packed"
STEP_KEYWORD = "attention_step"
"""The keyword under which a model's forward hands the `AttentionStep` down to every layer."""
_SOFTCAP_TILE = 1 << 24
"""Most attention scores that the soft-capped path holds at once."""


@dataclass(frozen=True, kw_only=True)
class LayerAttention:
    """What one layer asks for. `window` W lets row i see row j where |i - j| < W; `None` is no window."""

    scaling: float
    causal: bool
    window: int | None = None
    softcap: float | None = None
    bias: torch.Tensor | None = None
    """`[1, A, L, L]` for the longest text; shorter texts take its upper left corner"""


class AttentionStep:
    """What all layers of one forward share: the batch, the path, and masks, built once for each shape."""

    def __init__(self, batch: PackedBatch, path: AttentionPath) -> None:
        self.batch = batch
        self.path = path
        self._masks: dict[tuple[int, int, bool, int | None], torch.Tensor] = {}
        self._num_keys: torch.Tensor | None = None

    def mask(self, run: Run, layer: LayerAttention) -> torch.Tensor | None:
        """Return the bool mask `[L, K]` of a run, or `None` where every row sees every key or causality is all."""
        window = layer.window if layer.window is not None and layer.window < run.length else None
        if window is None and (not layer.causal or run.num_keys == run.length):
            return None
        key = (run.length, run.num_keys, layer.causal, window)
        if key not in self._masks:
            self._masks[key] = _build_mask(*key, device=self.batch.input_ids_T.device)
        return self._masks[key]

    def num_keys(self) -> torch.Tensor | None:
        """Return the int32 `[B]` numbers of keys on the device, or `None` where every row is a key."""
        if np.array_equal(self.batch.num_keys_np, self.batch.seq_lens_np):
            return None
        if self._num_keys is None:
            device = self.batch.input_ids_T.device
            self._num_keys = async_tensor_h2d(self.batch.num_keys_np.astype(np.int32), device)
        return self._num_keys


def register_packed_attention() -> None:
    """Make transformers know `ATTENTION_NAME`. Doing it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, packed_attention)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each text. `query` `[1, A, T, D]`, `key` and `value` `[1, G, T, D]`; returns `[1, T, A, D]`.

    The signature is transformers'. Causal is the keyword `is_causal` if given, else what the module says.
    """
    assert attention_mask is None, "transformers built a mask although no mask function is registered"
    step: AttentionStep = kwargs[STEP_KEYWORD]
    return attend(step, query[0], key[0], value[0], _layer_of(module, query.shape[-1], kwargs))[None], None


def _layer_of(module: torch.nn.Module, head_dim: int, kwargs: Mapping[str, Any]) -> LayerAttention:
    own, asked = getattr(module, "is_causal", True), kwargs.get("is_causal")
    scaling, window = kwargs.get("scaling"), kwargs.get("sliding_window")
    if window is not None and own and asked is False:
        # transformers' masks count W inclusively where a causal architecture is made bidirectional by its config.
        window += 1
    return LayerAttention(
        scaling=head_dim**-0.5 if scaling is None else scaling,
        causal=own if asked is None else asked,
        window=window,
        softcap=kwargs.get("softcap"),
        bias=kwargs.get("position_bias"),
    )


def attend(
    step: AttentionStep, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention
) -> torch.Tensor:
    """Attend within each text of the step: `query` `[A, T, D]`, `key` and `value` `[G, T, D]` to `[T, A, D]`."""
    if step.path.path == "varlen" and not _shifted_by_fewer_keys(step, layer):
        return _attend_varlen(step, query, key, value, layer)
    runs = step.batch.runs
    if len(runs) == 1:
        return _attend_run(step, runs[0], (query, key, value), layer)
    output_TAD = query.new_empty((query.shape[1], query.shape[0], value.shape[-1]))
    for run in runs:
        rows = slice(run.start, run.start + run.num_seqs * run.length)
        output_TAD[rows] = _attend_run(step, run, (query[:, rows], key[:, rows], value[:, rows]), layer)
    return output_TAD


def _shifted_by_fewer_keys(step: AttentionStep, layer: LayerAttention) -> bool:
    """The kernel lines the last key up with the last row, which moves windows where there are fewer keys than rows."""
    return (layer.causal or layer.window is not None) and step.num_keys() is not None


def _attend_varlen(
    step: AttentionStep, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention
) -> torch.Tensor:
    assert layer.softcap is None, "the variable-length kernel has no softcap"
    assert layer.bias is None, "the variable-length kernel has no position bias"
    batch, num_keys = step.batch, step.num_keys()
    # The kernel's window is inclusive and -1 means none.
    side = -1 if layer.window is None else layer.window - 1
    output = varlen_attn(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        batch.cu_seqlens,
        batch.cu_seqlens,
        batch.max_seq_len,
        batch.max_seq_len,
        scale=layer.scaling,
        window_size=(side, 0 if layer.causal else side),
        enable_gqa=query.shape[0] != key.shape[0],
        seqused_k=num_keys,
    )
    assert isinstance(output, torch.Tensor)
    return output


def _attend_run(step: AttentionStep, run: Run, heads: tuple[torch.Tensor, ...], layer: LayerAttention) -> torch.Tensor:
    """Attend within the texts of one run, given its query, key and value rows; return `[N * L, A, D]`."""
    query, key, value = (
        part.view(part.shape[0], run.num_seqs, run.length, part.shape[-1]).transpose(0, 1) for part in heads
    )
    if run.num_keys < run.length:
        key, value = key[:, :, : run.num_keys], value[:, :, : run.num_keys]
    mask = step.mask(run, layer)
    if layer.softcap is not None:
        output = _softcapped(query, key, value, mask, layer)
    else:
        output = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_with_bias(mask, run, layer),
            is_causal=layer.causal and mask is None and layer.bias is None,
            scale=layer.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    return output.transpose(1, 2).reshape(run.num_seqs * run.length, query.shape[1], value.shape[-1])


def _with_bias(mask: torch.Tensor | None, run: Run, layer: LayerAttention) -> torch.Tensor | None:
    """Join the bool mask and the position bias, where there is one, to what is added to the scores."""
    if layer.bias is None:
        return mask
    assert not layer.causal, "a position bias on causal attention is not supported"
    bias = layer.bias[:, :, : run.length, : run.num_keys]
    return bias if mask is None else bias.masked_fill(~mask, -math.inf)


def _softcapped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, layer: LayerAttention
) -> torch.Tensor:
    """Attention with `softcap * tanh(scores / softcap)`, over tiles of query rows to bound the memory."""
    assert layer.softcap is not None
    assert layer.bias is None, "softcap and a position bias together are not supported"
    num_seqs, num_heads, length, _ = query.shape
    groups = num_heads // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) if groups > 1 else part for part in (key, value))
    if mask is None and layer.causal:
        mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril_()
    tile = max(1, _SOFTCAP_TILE // (num_seqs * num_heads * key.shape[2]))
    outputs = []
    for start in range(0, length, tile):
        scores = query[:, :, start : start + tile] @ key.transpose(2, 3) * layer.scaling
        scores = torch.tanh(scores / layer.softcap) * layer.softcap
        if mask is not None:
            scores = scores.masked_fill(~mask[start : start + tile], -math.inf)
        outputs.append(torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def _build_mask(length: int, num_keys: int, causal: bool, window: int | None, *, device: torch.device) -> torch.Tensor:
    distance = torch.arange(length, device=device)[:, None] - torch.arange(num_keys, device=device)
    mask = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        mask &= distance.abs() < window
    if num_keys < length and window is not None:
        # Rows far behind the last key see none within the window; softmax over nothing would be NaN.
        mask |= ~mask.any(dim=-1, keepdim=True)
    return mask

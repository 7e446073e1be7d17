"""Packed attention: texts laid end to end, each attends only to itself.

transformers calls `packed_attention` through its `AttentionInterface`. No mask function is registered under the name:
transformers then builds no masks, which costs memory and, for some models, a copy back from the device.

Shape suffixes: T packed tokens, N texts of one run, L rows of each, K keys of each, A query heads, G key heads, D head.
Nothing here reads a device tensor on the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from cenote.models.attention_step import STEP_KEYWORD, AttentionStep, LayerAttention
from cenote.models.batch import Run
from cenote.models.context import KeyValue

ATTENTION_NAME = "cenote_packed"
_SOFTCAP_TILE = 1 << 24
"""Most attention scores that the soft-capped path holds at once."""


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
        index=getattr(module, "layer_idx", None) or 0,
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
        output_TAD[_rows(run)] = _attend_run(step, run, (query, key, value), layer)
    return output_TAD


def _shifted_by_fewer_keys(step: AttentionStep, layer: LayerAttention) -> bool:
    """The kernel lines the last key up with the last row, which moves windows where there are fewer keys than rows."""
    return (layer.causal or layer.window is not None) and step.num_keys() is not None


def _attend_varlen(
    step: AttentionStep, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention
) -> torch.Tensor:
    assert layer.softcap is None, "the variable-length kernel has no softcap"
    assert layer.bias is None, "the variable-length kernel has no position bias"
    batch, (cu_keys, max_keys) = step.batch, step.cu_keys()
    if batch.contexts is not None:
        key, value = _keys_with_contexts(step, key, value, layer)
    # The kernel's window is inclusive and -1 means none.
    side = -1 if layer.window is None else layer.window - 1
    output = varlen_attn(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        batch.cu_seqlens,
        cu_keys,
        batch.max_seq_len,
        max_keys,
        scale=layer.scaling,
        window_size=(side, 0 if layer.causal else side),
        enable_gqa=query.shape[0] != key.shape[0],
        seqused_k=step.num_keys(),
    )
    assert isinstance(output, torch.Tensor)
    return output


def _keys_with_contexts(
    step: AttentionStep, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay each sequence's keys and values, its context first, end to end: `[G, sum of keys, D]` each.

    One kernel call then serves chunked and whole sequences alike; the copy is small beside the attention itself.
    """
    runs = [_key_value_of_run(run, key, value, layer) for run in step.batch.runs]
    keys, values = zip(*runs, strict=True)
    return tuple(torch.cat([part.transpose(0, 1).flatten(1, 2) for part in parts], dim=1) for parts in (keys, values))  # type: ignore[return-value]


def _rows(run: Run) -> slice:
    return slice(run.start, run.start + run.num_seqs * run.length)


def _by_sequence(part: torch.Tensor, run: Run) -> torch.Tensor:
    """Return a run's rows of `[heads, T, D]` as `[N, heads, L, D]`."""
    return part[:, _rows(run)].view(part.shape[0], run.num_seqs, run.length, part.shape[-1]).transpose(0, 1)


def _key_value_of_run(run: Run, key: torch.Tensor, value: torch.Tensor, layer: LayerAttention) -> KeyValue:
    """Return what the rows of a run may see: `[N, G, context and keys, D]` each."""
    own = _by_sequence(key, run), _by_sequence(value, run)
    if run.num_keys < run.length:
        own = own[0][:, :, : run.num_keys], own[1][:, :, : run.num_keys]
    return own if run.context is None else run.context.extend(layer.index, own, (key, value))


def _attend_run(step: AttentionStep, run: Run, heads: tuple[torch.Tensor, ...], layer: LayerAttention) -> torch.Tensor:
    """Attend within the texts of one run, given the step's query, keys and values; return `[N * L, A, D]`."""
    query = _by_sequence(heads[0], run)
    key, value = _key_value_of_run(run, heads[1], heads[2], layer)
    mask = step.mask(run, layer)
    if layer.softcap is not None:
        output = _softcapped(query, key, value, mask, layer)
    else:
        output = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_with_bias(mask, run, layer),
            is_causal=layer.causal and mask is None and layer.bias is None and not run.num_context_rows,
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
    if mask is None and layer.causal and length > 1:
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

"""BERT's block written for packed rows: one product for query, key and value, residuals added inside the products.

The weights are those of the transformers modules, which are the reference twin until `rewrite` lets go of them:
`PackedBackbone` runs them as they are. MPNet, whose own attention knows no packs, runs on this path too, with its
position bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.activations import GELUActivation

from cenote.models.attention import attend
from cenote.models.attention_path import AttentionPath
from cenote.models.attention_step import AttentionStep, LayerAttention
from cenote.models.batch import PackedBatch
from cenote.models.int8 import Int8Linear
from cenote.models.prepacked import PrepackedLinear

FUSED_TYPES = frozenset({"bert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet"})


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The modules of one transformers layer, by what they do."""

    query_key_value: Sequence[nn.Linear]
    attention_output: nn.Linear
    attention_norm: nn.LayerNorm
    up: nn.Linear
    activation: nn.Module
    down: nn.Linear
    output_norm: nn.LayerNorm


class FusedLayer(nn.Module):
    """One post-norm encoder layer: packed hidden states `[T, H]` to `[T, H]`. Its input may be overwritten."""

    def __init__(self, parts: _Parts, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = _join(parts.query_key_value)
        self.attention_output = parts.attention_output
        self.attention_norm = parts.attention_norm
        self.up = parts.up
        self.activation = _in_place(parts.activation)
        self.down = parts.down
        self.output_norm = parts.output_norm

    def forward(self, hidden_TH: torch.Tensor, step: AttentionStep, layer: LayerAttention) -> torch.Tensor:
        num_rows, hidden_size = hidden_TH.shape
        num_tokens = step.batch.num_tokens
        joined = self.query_key_value(hidden_TH).view(num_rows, 3, self.num_heads, hidden_size // self.num_heads)
        query, key, value = joined[:num_tokens].permute(1, 2, 0, 3)
        context_TH = attend(step, query, key, value, layer).reshape(num_tokens, hidden_size)
        context_TH = _with_rows(context_TH, num_rows)
        hidden_TH = self.attention_norm(_add_linear(hidden_TH, context_TH, self.attention_output))
        inner = self.activation(self.up(hidden_TH))
        output_TH: torch.Tensor = self.output_norm(_add_linear(hidden_TH, inner, self.down))
        return output_TH


class FusedBackbone(nn.Module):
    """Run an encoder of `FUSED_TYPES` over a pack: `PackedBatch` to hidden states `[T, H]`."""

    def __init__(self, model: PreTrainedModel, path: AttentionPath) -> None:
        super().__init__()
        self.model = model
        self.path = path
        num_heads = model.config.num_attention_heads
        self.scaling = (model.config.hidden_size // num_heads) ** -0.5
        self.has_bias = model.config.model_type == "mpnet"
        take = _mpnet_parts if self.has_bias else _bert_parts
        self.layers = nn.ModuleList(FusedLayer(take(layer), num_heads) for layer in model.encoder.layer)

    def forward(self, batch: PackedBatch) -> torch.Tensor:
        hidden_TH = self._embed(batch)
        if not self.model.encoder.layer:  # rewritten, with products of oneDNN's own
            hidden_TH = _with_rows(hidden_TH, round_rows(batch.num_tokens))
        step = AttentionStep(batch, self.path)
        layer = LayerAttention(scaling=self.scaling, causal=False, bias=self._bias(batch))
        for block in self.layers:
            hidden_TH = block(hidden_TH, step, layer)
        return hidden_TH[: batch.num_tokens]

    def drop_plain_layers(self) -> None:
        """Let go of the transformers layers, and with them of the weights that the blocks no longer use."""
        self.model.encoder.layer = nn.ModuleList()

    def _embed(self, batch: PackedBatch) -> torch.Tensor:
        inputs = {"input_ids": batch.input_ids_T[None], "position_ids": batch.positions_T[None]}
        if batch.token_type_ids_T is not None:
            inputs["token_type_ids"] = batch.token_type_ids_T[None]
        embedded = self.model.embeddings(**inputs)
        if hasattr(self.model, "embeddings_project"):  # ELECTRA, where the embeddings are narrower
            embedded = self.model.embeddings_project(embedded)
        hidden_TH: torch.Tensor = embedded[0]
        return hidden_TH

    def _bias(self, batch: PackedBatch) -> torch.Tensor | None:
        """Return MPNet's position bias for the longest text; it depends on the distance only."""
        if not self.has_bias:
            return None
        longest = batch.input_ids_T[None, : batch.max_seq_len]
        bias: torch.Tensor = self.model.encoder.compute_position_bias(longest)
        return bias


def round_rows(num_rows: int) -> int:
    """Return the next of 16 numbers between one power of two and the next, at most a sixteenth more.

    oneDNN prepares a product for each number of rows, and keeps it: about a millisecond and up to a megabyte for each.
    """
    multiple = max(1, (1 << num_rows.bit_length() - 1) // 16)
    return -(-num_rows // multiple) * multiple


def _with_rows(rows_TH: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return the rows with zeros after them, `num_rows` in all."""
    missing = num_rows - rows_TH.shape[0]
    return F.pad(rows_TH, (0, 0, 0, missing)) if missing else rows_TH


def _add_linear(residual: torch.Tensor, rows: torch.Tensor, linear: nn.Module) -> torch.Tensor:
    """Return `residual + linear(rows)`; both may be overwritten."""
    if isinstance(linear, PrepackedLinear | Int8Linear):
        return linear.add_to(residual, rows)
    if isinstance(linear, nn.Linear):
        return residual.add_(linear.bias).addmm_(rows, linear.weight.t())
    return residual.add_(linear(rows))


def _in_place(activation: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the activation; GELU, which nearly all have, without a second buffer."""
    return torch.ops.aten.gelu_ if isinstance(activation, GELUActivation) else activation


def _join(linears: Sequence[nn.Linear]) -> nn.Linear:
    """Return one linear layer for all; the originals become views of its rows, so nothing is held twice."""
    joined = nn.Linear(linears[0].in_features, sum(linear.out_features for linear in linears), device="meta")
    joined.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]), requires_grad=False)
    sizes = [linear.out_features for linear in linears]
    for linear, weight, bias in zip(
        linears, torch.split(joined.weight, sizes), torch.split(joined.bias, sizes), strict=True
    ):
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return joined


def _bert_parts(layer: Any) -> _Parts:
    attention = layer.attention.self
    return _Parts(
        query_key_value=(attention.query, attention.key, attention.value),
        attention_output=layer.attention.output.dense,
        attention_norm=layer.attention.output.LayerNorm,
        **_feed_forward(layer),
    )


def _mpnet_parts(layer: Any) -> _Parts:
    attention = layer.attention.attn
    return _Parts(
        query_key_value=(attention.q, attention.k, attention.v),
        attention_output=attention.o,
        attention_norm=layer.attention.LayerNorm,
        **_feed_forward(layer),
    )


def _feed_forward(layer: Any) -> dict[str, Any]:
    return {
        "up": layer.intermediate.dense,
        "activation": layer.intermediate.intermediate_act_fn,
        "down": layer.output.dense,
        "output_norm": layer.output.LayerNorm,
    }

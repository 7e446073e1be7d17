"""The packed path: a transformers backbone that reads a `PackedBatch` as one long row and never mixes its texts."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from cenote.models.attention_path import AttentionPath
from cenote.models.attention_step import STEP_KEYWORD, AttentionStep
from cenote.models.batch import PackedBatch


class PackedBackbone(nn.Module):
    """Run `model` over the whole pack at once: `PackedBatch` to hidden states `[T, H]`.

    `uses_positions` is off for T5, whose forward takes none.
    """

    def __init__(self, model: PreTrainedModel, path: AttentionPath, *, uses_positions: bool = True) -> None:
        super().__init__()
        self.model = model
        self.path = path
        self.uses_positions = uses_positions
        self.is_causal: bool | None = getattr(model.config, "is_causal", None)
        # Without transformers' decorators, one of which sets `config.is_causal` for the time of a forward.
        self._forward = inspect.unwrap(type(model).forward)

    def forward(self, batch: PackedBatch) -> torch.Tensor:
        inputs: dict[str, Any] = {"input_ids": batch.input_ids_T[None]}
        if self.uses_positions:
            inputs["position_ids"] = batch.positions_T[None]
        if batch.token_type_ids_T is not None:
            inputs["token_type_ids"] = batch.token_type_ids_T[None]
        if self.is_causal is not None:
            inputs["is_causal"] = self.is_causal
        inputs[STEP_KEYWORD] = AttentionStep(batch, self.path)
        hidden_TH: torch.Tensor = self._forward(self.model, **inputs).last_hidden_state[0]
        return hidden_TH


def bound_t5_bias(encoder: nn.Module) -> None:
    """Make a T5 encoder build its position bias for the longest text of a step, where it would for the whole pack.

    The bias depends on the distance only, so shorter texts use its corner.
    """
    attention = encoder.block[0].layer[0].SelfAttention  # type: ignore[index, union-attr]
    attention.register_forward_pre_hook(_with_bias_of_longest_text, with_kwargs=True)


def _with_bias_of_longest_text(
    attention: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    step: AttentionStep | None = kwargs.get(STEP_KEYWORD)
    if step is None:  # a plain run, one text at a time: transformers' own bias has the right size
        return args, kwargs
    longest = step.batch.max_seq_len
    device = step.batch.input_ids_T.device
    bias = attention.compute_bias(longest, longest, device=device).contiguous()
    return args, {**kwargs, "position_bias": bias}

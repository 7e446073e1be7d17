"""The rows that end a step of reasoning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.all import AllPool
from cenote.pooling.packed import TokenRows, map_packed
from cenote.transfer import async_tensor_h2d


@dataclass(frozen=True)
class StepDefaults:
    """What a checkpoint asks for where the params ask for nothing: which token ends a step, which columns to give."""

    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] | None = None

    def tag(self, params: PoolingParams) -> int | None:
        return self.step_tag_id if params.step_tag_id is None else params.step_tag_id

    def columns(self, params: PoolingParams) -> tuple[int, ...]:
        chosen = self.returned_token_ids if params.returned_token_ids is None else params.returned_token_ids
        return chosen or ()


class StepPool(AllPool):
    """Give the columns `returned_token_ids` of the rows whose token is `step_tag_id`; without a tag, of every row.

    A text without the tag gives no rows: `(0, D)`. `scorer` turns hidden states into the columns that are chosen from;
    it runs on the chosen rows only, since rows and columns may be chosen in either order. The positions are found on
    the host, and go up together.
    """

    def __init__(self, scorer: nn.Module | None = None, defaults: StepDefaults | None = None) -> None:
        super().__init__()
        self.scorer = scorer
        self.defaults = defaults or StepDefaults()

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:  # noqa: ARG002 - the same for every task
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> TokenRows:
        rows = super().forward(hidden_states, pooling_metadata)
        prompts = pooling_metadata.get_prompt_token_ids_np()
        tags = [self.defaults.tag(params) for params in pooling_metadata.pooling_params]
        rows = select_rows(rows, [_tagged(ids, tag) for ids, tag in zip(prompts, tags, strict=True)])
        scorer = self.scorer
        if scorer is not None:
            rows = map_packed(rows, lambda packed, _: scorer(packed.float()))
        wanted = [self.defaults.columns(params) for params in pooling_metadata.pooling_params]
        return select_columns(rows, wanted, hidden_states.device)


def select_columns(rows: TokenRows, wanted: list[tuple[int, ...]], device: torch.device) -> TokenRows:
    """Return each sequence's rows with its columns, all of them where it wants none. One upload for each choice."""
    uploaded = {columns: async_tensor_h2d(columns, device) for columns in dict.fromkeys(wanted) if columns}
    return [
        each.index_select(1, uploaded[columns]) if each is not None and columns else each
        for each, columns in zip(rows, wanted, strict=True)
    ]


def _tagged(token_ids_np: IntArray, tag: int | None) -> IntArray | None:
    return None if tag is None else np.flatnonzero(token_ids_np == tag)


def select_rows(rows: TokenRows, positions: list[IntArray | None]) -> TokenRows:
    """Return each sequence's rows at its host positions, all of them where it has `None`. One upload for all."""
    chosen = {i: at for i, at in enumerate(positions) if at is not None and rows[i] is not None}
    if not chosen:
        return rows
    device = next(each.device for each in rows if each is not None)
    packed = async_tensor_h2d(np.concatenate(list(chosen.values())), device)
    parts = dict(zip(chosen, torch.split(packed, [len(at) for at in chosen.values()]), strict=True))
    return [each.index_select(0, parts[i]) if each is not None and i in parts else each for i, each in enumerate(rows)]

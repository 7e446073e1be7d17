"""From what a checkpoint says to the poolers of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote.checkpoint.spec import ModelSpec
from cenote.params import Task
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.pooler import Pooler
from cenote.pooling.poolers.sequence import pooler_for_embed

if TYPE_CHECKING:
    from cenote.models.load import LoadedModel


def build_pooler(spec: ModelSpec, model: LoadedModel, *, any_dimensions: bool = False) -> DispatchPooler:
    """Build every task that `spec` offers, on the model's device.

    `any_dimensions` lets callers cut embeddings that were not trained for it. Raise `CheckpointError` where a weight
    that a pooler needs cannot be read or has another shape.
    """
    poolers: dict[Task, Pooler] = {}
    if spec.embed is not None:
        poolers["embed"] = pooler_for_embed(spec.embed, any_dimensions)
    return DispatchPooler(poolers).to(model.device).eval()

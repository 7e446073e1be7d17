"""What a pooler is built from."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.checkpoint.spec import ModelSpec
from cenote.models.load import LoadedModel


@dataclass(frozen=True)
class Origin:
    """The checkpoint's facts, its loaded model, and whether callers may cut embeddings that were not trained for it."""

    spec: ModelSpec
    model: LoadedModel
    any_dimensions: bool = False

"""From what a checkpoint says to the poolers of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cenote.checkpoint.spec import (
    ClassifySpec,
    EmbedSpec,
    LexicalSpec,
    ModelSpec,
    MultiVectorSpec,
    SpladeSpec,
    TokenClassifySpec,
)
from cenote.models.load import LoadedModel
from cenote.params import Task
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.origin import Origin
from cenote.pooling.pooler import Pooler
from cenote.pooling.poolers.late_chunks import pooler_for_dense
from cenote.pooling.poolers.lexical import pooler_for_lexical, pooler_for_lexical_tokens
from cenote.pooling.poolers.multi_vector import pooler_for_token_embed
from cenote.pooling.poolers.process_reward import pooler_for_steps
from cenote.pooling.poolers.sequence import pooler_for_classify
from cenote.pooling.poolers.splade import pooler_for_splade
from cenote.pooling.poolers.token import pooler_for_hidden_states, pooler_for_token_classify

_TOKEN_KINDS: Mapping[str, Callable[[TokenClassifySpec, Origin], Pooler]] = {
    "token_labels": pooler_for_token_classify,
    "process_reward": pooler_for_steps,
    "lexical": pooler_for_lexical_tokens,
}


def _pooler_for_tokens(spec: TokenClassifySpec, origin: Origin) -> Pooler:
    return _TOKEN_KINDS[spec.kind](spec, origin)


_BUILDERS: Mapping[type, Callable[[Any, Origin], Pooler]] = {
    EmbedSpec: pooler_for_dense,
    SpladeSpec: pooler_for_splade,
    LexicalSpec: pooler_for_lexical,
    MultiVectorSpec: pooler_for_token_embed,
    ClassifySpec: pooler_for_classify,
    TokenClassifySpec: _pooler_for_tokens,
}
"""Which pooler answers which part of a `ModelSpec`."""


def build_pooler(spec: ModelSpec, model: LoadedModel, *, any_dimensions: bool = False) -> DispatchPooler:
    """Build every task that `spec` offers, on the model's device; for dense embeddings also the rows that are pooled.

    `any_dimensions` lets callers cut embeddings that were not trained for it. Raise `CheckpointError` where a weight
    that a pooler needs cannot be read or has another shape.
    """
    origin = Origin(spec, model, any_dimensions)
    parts = {task: getattr(spec, task) for task in spec.tasks}
    poolers: dict[Task, Pooler] = {task: _BUILDERS[type(part)](part, origin) for task, part in parts.items()}
    if spec.embed is not None:
        poolers.setdefault("token_embed", pooler_for_hidden_states(origin))
    pooler = DispatchPooler(poolers).to(model.device).eval()
    pooler.requires_grad_(False)
    return pooler

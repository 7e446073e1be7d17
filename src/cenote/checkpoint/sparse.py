"""SPLADE: a masked-language head whose logits are pooled to one weight for each term of the vocabulary."""

from __future__ import annotations

from typing import Literal, cast

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import Fact, SpladeSpec
from cenote.errors import CheckpointError

_STRATEGIES = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")
_NO_SUCH_KEYS = frozenset({"bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet"})
"""Families whose configurations have no `cls_token_id` of their own: who wrote it there meant something by it."""


def from_modules(checkpoint: Checkpoint) -> Parts | None:
    """Recognise sentence-transformers' SparseEncoder: a fill-mask Transformer and SpladePooling."""
    kinds = [module.kind for module in checkpoint.modules[1:]]
    if "SpladePooling" not in kinds:
        return None
    if kinds != ["SpladePooling"]:
        raise CheckpointError(
            f"modules.json of {checkpoint.name} puts {', '.join(kinds)} behind the Transformer; Cenote runs "
            f"SpladePooling alone"
        )
    module = checkpoint.modules[1]
    task = checkpoint.module_settings.get("transformer_task", "fill-mask")
    if task != "fill-mask":
        raise CheckpointError(
            f"{checkpoint.name} has SpladePooling behind a {task!r} Transformer, not behind fill-mask"
        )
    source = f"{module.folder.name}/config.json"
    strategy = module.config.get("pooling_strategy", "max")
    activation = module.config.get("activation_function", "relu")
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{source} asks for the activation {activation!r}; Cenote knows {', '.join(_ACTIVATIONS)}"
        )
    return _parts(checkpoint, strategy, activation, source)


def asked_for(checkpoint: Checkpoint) -> Parts | None:
    """Recognise SPLADE where the user asked for `embed_sparse` of a masked-language model without other files.

    Nothing in such a folder tells a SPLADE model from the language model that it was made of, so it is never assumed.
    Pooling is `max` unless the user says `sum`: so does sentence-transformers, and so were SPLADE v2 and later trained.
    """
    if checkpoint.task != "embed_sparse" or not checkpoint.architecture.endswith("ForMaskedLM"):
        return None
    return _parts(checkpoint, checkpoint.pooling or "max", "relu", "the option task")


def _parts(checkpoint: Checkpoint, strategy: object, activation: str, source: str) -> Parts:
    if strategy not in _STRATEGIES:
        raise CheckpointError(f"{source} asks for the SPLADE pooling {strategy!r}; Cenote knows max and sum")
    if not checkpoint.architecture.endswith("ForMaskedLM"):
        raise CheckpointError(
            f"{checkpoint.name} is a {checkpoint.architecture}: it has no masked-language head for SPLADE"
        )
    skips = checkpoint.config["model_type"] in _NO_SUCH_KEYS
    splade = SpladeSpec(
        pooling=cast("Literal['max', 'sum']", strategy),
        activation=cast("Literal['relu', 'log1p_relu']", activation),
        skip_first_token_id=checkpoint.config.get("cls_token_id") if skips else None,
        skip_last_token_id=checkpoint.config.get("sep_token_id") if skips else None,
        vocab_size=checkpoint.vocab_size,
    )
    fact = Fact(what="sparse", value=f"SPLADE, {strategy} of log1p({activation}(logits))", source=source)
    return Parts(embed_sparse=splade, facts=(fact,))

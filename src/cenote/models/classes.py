"""Which transformers class a checkpoint is loaded into, from the parts that its `ModelSpec` has."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
)

from cenote.checkpoint.spec import ModelSpec, SpladeSpec
from cenote.errors import CheckpointError

HeadKind = Literal["base", "reward", "sequence_classification", "token_classification", "masked_lm", "causal_lm"]

REWARD_ARCHITECTURES = frozenset({"Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"})
"""Backbones with a two-layer `score` that transformers has no class for."""
T5_TYPES = frozenset({"t5", "mt5"})
PADDED_TYPES = frozenset({"deberta-v2"})
BIASED_TYPES = T5_TYPES | {"mpnet"}
"""Families that add a position bias to the attention scores."""
OWN_ATTENTION_TYPES = PADDED_TYPES | {"mpnet"}
"""Families that compute attention by themselves, outside transformers' `AttentionInterface`."""

_MAPPINGS = {
    "base": MODEL_MAPPING,
    "reward": MODEL_MAPPING,
    "sequence_classification": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "token_classification": MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "masked_lm": MODEL_FOR_MASKED_LM_MAPPING,
    "causal_lm": MODEL_FOR_CAUSAL_LM_MAPPING,
}


def head_kind(spec: ModelSpec) -> HeadKind:
    """Return which head the model is loaded with. Heads that lie beside the backbone's weights are the poolers' own."""
    if spec.architecture in REWARD_ARCHITECTURES:
        return "reward"
    if spec.classify is not None:
        return "causal_lm" if spec.classify.kind == "llm_reranker" else "sequence_classification"
    if spec.token_classify is not None and spec.token_classify.kind != "lexical":
        return "token_classification"
    return "masked_lm" if isinstance(spec.embed_sparse, SpladeSpec) else "base"


def build_config(spec: ModelSpec) -> PretrainedConfig:
    """Build transformers' config from `spec.config`, without a key/value cache."""
    if spec.model_type not in CONFIG_MAPPING:
        raise CheckpointError(f"transformers has no architecture for the model_type {spec.model_type!r} of {spec.name}")
    config: PretrainedConfig = CONFIG_MAPPING[spec.model_type].from_dict(dict(spec.config))
    config.use_cache = False
    return config


def model_class(config: PretrainedConfig, kind: HeadKind) -> type[PreTrainedModel]:
    """Return the class that transformers has for a config and a head, or raise `CheckpointError`."""
    is_t5 = config.model_type in T5_TYPES
    mapping = MODEL_FOR_TEXT_ENCODING_MAPPING if is_t5 and kind == "base" else _MAPPINGS[kind]
    if type(config) not in mapping or (is_t5 and kind == "sequence_classification"):
        raise CheckpointError(f"transformers has no {kind.replace('_', ' ')} model of type {config.model_type!r}")
    found = mapping[type(config)]
    chosen: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    return chosen


def constructor_options(cls: type[PreTrainedModel], kind: HeadKind) -> dict[str, Any]:
    """Return what keeps a bare backbone from building a pooler that nobody would use."""
    takes_option = "add_pooling_layer" in inspect.signature(cls.__init__).parameters
    return {"add_pooling_layer": False} if takes_option and kind in ("base", "reward") else {}

"""From a `ModelSpec` to a model that takes a `PackedBatch`. Wrong, missing and broken weights are refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from cenote.checkpoint.families import family_of, padding_idx, type_vocab_size
from cenote.checkpoint.spec import ModelSpec, TensorSource
from cenote.errors import CheckpointError
from cenote.models.attention import ATTENTION_NAME, register_packed_attention
from cenote.models.attention_path import AttentionNeeds, AttentionPath, choose_attention, device_capability
from cenote.models.backbone import PackedBackbone, bound_t5_bias
from cenote.models.classes import (
    BIASED_TYPES,
    OWN_ATTENTION_TYPES,
    PADDED_TYPES,
    T5_TYPES,
    HeadKind,
    build_config,
    constructor_options,
    head_kind,
    model_class,
)
from cenote.models.fused import FUSED_TYPES, FusedBackbone
from cenote.models.heads import (
    SequenceClassifier,
    masked_lm_head,
    sequence_classifier,
    token_classifier,
    vocabulary_score,
)
from cenote.models.padded import PaddedBackbone
from cenote.models.reward import SCORE_PREFIX, reward_score
from cenote.models.weights import load_weights


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model on its device, ready to run. What the checkpoint's tasks do not need is `None`.

    `backbone`: `PackedBatch` to `[T, H]` in the model's dtype. `classifier` and `token_classifier` run in fp32,
    `masked_lm_head` `[N, H] -> [N, V]` in the model's dtype: run it in tiles. `module` holds all weights and is what
    plain transformers would run.
    """

    module: PreTrainedModel
    backbone: nn.Module
    classifier: SequenceClassifier | None = None
    token_classifier: nn.Module | None = None
    masked_lm_head: nn.Module | None = None
    position_offset: int
    """Position of a text's first token"""
    uses_token_types: bool
    is_causal: bool
    hidden_size: int
    attention: AttentionPath
    num_parameters: int
    unused_weights: tuple[str, ...]
    """Keys of the checkpoint that no module of this model took"""
    dtype: torch.dtype
    device: torch.device


def load_model(spec: ModelSpec, *, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """Load the weights of `spec` onto `device`; on `meta` only the shapes are built and no weight is read.

    Raises `CheckpointError` where a weight that the model uses is missing, cut short or of another shape, and where the
    checkpoint asks for something that no path can do.
    """
    _refuse_unsupported(spec)
    kind = head_kind(spec)
    config = build_config(spec)
    register_packed_attention()
    config._attn_implementation = "eager" if spec.model_type in OWN_ATTENTION_TYPES else ATTENTION_NAME
    cls = model_class(config, kind)
    module, unused = load_weights(spec, cls, config, constructor_options(cls, kind), (dtype, device))
    module.eval().requires_grad_(False)
    path = choose_attention(_needs(module, dtype, device))
    return LoadedModel(
        module=module,
        backbone=_backbone(module, path),
        **_heads(spec, module, kind, device),
        position_offset=_position_offset(spec.config),
        uses_token_types=type_vocab_size(spec.config) > 1,
        is_causal=spec.is_causal,
        hidden_size=spec.hidden_size,
        attention=path,
        num_parameters=sum(parameter.numel() for parameter in module.parameters()),
        unused_weights=_unused(spec, unused, kind),
        dtype=dtype,
        device=device,
    )


def _unused(spec: ModelSpec, left: Iterable[str], kind: HeadKind) -> tuple[str, ...]:
    """Return the keys of `left` that neither the reward head nor a pooler reads from the backbone's own files."""
    parts = (spec.embed, spec.embed_sparse, spec.token_embed)
    prefixes = tuple(f"{source.prefix.rstrip('.')}." for source in _sources(parts) if source.path in spec.weight_files)
    taken = (*prefixes, SCORE_PREFIX) if kind == "reward" else prefixes
    return tuple(key for key in left if not key.startswith(taken))


def _sources(part: object) -> Iterator[TensorSource]:
    """Find every `TensorSource` in a part of the spec."""
    if isinstance(part, TensorSource):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _sources(item)
    elif is_dataclass(part):
        yield from _sources(tuple(getattr(part, field.name) for field in fields(part)))


def _refuse_unsupported(spec: ModelSpec) -> None:
    expansion = spec.text.expansion
    hidden_fill = expansion is not None and expansion.expand_queries and not expansion.attend_to_expansion
    if spec.model_type == "deberta-v2" and hidden_fill:
        raise CheckpointError(
            f"{spec.name} fills up queries with tokens that others do not attend to, which DeBERTa cannot do"
        )


def _position_offset(config: Mapping[str, Any]) -> int:
    return padding_idx(config) + 1 if family_of(config["model_type"]).positions == "offset" else 0


def _needs(module: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> AttentionNeeds:
    config = module.config
    head_dim = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
    return AttentionNeeds(
        device_type=device.type,
        dtype=dtype,
        capability=device_capability(device),
        head_dim=head_dim or config.hidden_size // config.num_attention_heads,
        softcap=getattr(config, "attn_logit_softcapping", None) is not None,
        bias=config.model_type in BIASED_TYPES,
        padded=config.model_type in PADDED_TYPES,
    )


def _backbone(module: PreTrainedModel, path: AttentionPath) -> nn.Module:
    backbone = module.base_model
    if path.path == "padded":
        return PaddedBackbone(backbone)
    if _is_fused(backbone, path):
        return FusedBackbone(backbone, path)
    is_t5 = module.config.model_type in T5_TYPES
    if is_t5:
        bound_t5_bias(backbone.encoder)
    return PackedBackbone(backbone, path, uses_positions=not is_t5)


def _is_fused(backbone: PreTrainedModel, path: AttentionPath) -> bool:
    """Fused blocks gain on the CPU; MPNet knows no other way to run on a pack."""
    model_type: str = backbone.config.model_type
    on_cpu = backbone.device.type == "cpu" and path.path == "runs"
    return model_type == "mpnet" or (on_cpu and model_type in FUSED_TYPES)


def _heads(spec: ModelSpec, module: PreTrainedModel, kind: HeadKind, device: torch.device) -> dict[str, Any]:
    """Return the fields of `LoadedModel` that hold heads."""
    match kind:
        case "sequence_classification":
            return {"classifier": sequence_classifier(module, spec.model_type)}
        case "token_classification":
            return {"token_classifier": token_classifier(module, spec.model_type)}
        case "masked_lm":
            return {"masked_lm_head": masked_lm_head(module, spec.model_type)}
        case "causal_lm":
            assert spec.classify is not None
            assert spec.classify.yes_token_id is not None, "a reranker of this kind names its answer"
            yes_id, no_id = spec.classify.yes_token_id, spec.classify.no_token_id
            return {"classifier": vocabulary_score(module, yes_id, no_id)}
        case "reward":
            score = reward_score(spec, device)
            is_outcome = spec.classify is not None
            return {
                "classifier": SequenceClassifier(rows="last", module=score) if is_outcome else None,
                "token_classifier": score if spec.token_classify is not None else None,
            }
    return {}

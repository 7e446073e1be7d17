"""The model families that Cenote runs, and what their configurations leave unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cenote.errors import CheckpointError

Positions = Literal["absolute", "offset", "rotary", "relative"]
"""`offset`: learned positions that start at `padding_idx + 1`, so that so many rows of the table are never a text's."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What holds for every checkpoint of one `model_type` of transformers."""

    positions: Positions
    causal: bool = False
    hidden_key: str = "hidden_size"
    default_type_vocab: int | None = None
    """transformers' default of `type_vocab_size`; `None` where the family has no token types."""


_BERT = Family(positions="absolute", default_type_vocab=2)
_ROBERTA = Family(positions="offset", default_type_vocab=2)
_ROTARY = Family(positions="rotary")
_DECODER = Family(positions="rotary", causal=True)
_T5 = Family(positions="relative", hidden_key="d_model")

FAMILIES: Mapping[str, Family] = {
    "bert": _BERT,
    "electra": _BERT,
    "distilbert": Family(positions="absolute", hidden_key="dim"),
    "deberta-v2": Family(positions="absolute", default_type_vocab=0),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": Family(positions="offset"),
    "modernbert": _ROTARY,
    "nomic_bert": Family(positions="rotary", default_type_vocab=2),
    "gte": Family(positions="rotary", default_type_vocab=1),
    "eurobert": _ROTARY,
    "jina_embeddings_v3": Family(positions="rotary", default_type_vocab=1),
    "t5": _T5,
    "mt5": _T5,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "llama": _DECODER,
    "mistral": _DECODER,
    "gemma": _DECODER,
    "gemma2": _DECODER,
    "gemma3_text": _DECODER,
}


def family_of(model_type: object) -> Family:
    """Return the family of a `model_type`, or raise `CheckpointError` with the list of those that are known."""
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise CheckpointError(
            f"config.json has model_type {model_type!r}, which Cenote does not run; it runs: {', '.join(FAMILIES)}"
        )
    return family


def is_causal(config: Mapping[str, Any]) -> bool:
    """Return whether tokens see only earlier ones: decoders, unless their config says bidirectional.

    The spellings in use: `is_causal: false` (gte-Qwen2) and `use_bidirectional_attention: true` (EmbeddingGemma).
    """
    if not family_of(config["model_type"]).causal:
        return False
    return config.get("is_causal") is not False and config.get("use_bidirectional_attention") is not True


def padding_idx(config: Mapping[str, Any]) -> int:
    """Return the padding row that learned positions of the `offset` families start behind."""
    if config["model_type"] == "mpnet":
        return 1  # transformers' MPNetEmbeddings fixes it, whatever the config says
    value = config.get("pad_token_id", 1)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise CheckpointError(f"config.json must give pad_token_id as a token id, not {value!r}")
    return 1 if value is None else value


def type_vocab_size(config: Mapping[str, Any]) -> int:
    """Return how many token types the model has; 0 or 1 means that pairs are not told apart by them."""
    default = family_of(config["model_type"]).default_type_vocab
    return 0 if default is None else int(config.get("type_vocab_size", default))

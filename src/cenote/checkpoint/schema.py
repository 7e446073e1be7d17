"""The types of the values that are read, checked once when a file is opened, so that no reader has to doubt them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from cenote.errors import CheckpointError

Kind = Literal["text", "texts", "text or texts", "integer", "size", "number", "flag", "object"]
Schema = Mapping[str, Kind]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_CHECKS: Mapping[Kind, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "texts": _is_texts,
    "text or texts": lambda value: isinstance(value, str) or _is_texts(value),
    "integer": _is_integer,
    "size": lambda value: _is_integer(value) and value > 0,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "flag": lambda value: isinstance(value, bool) or value in (0, 1),
    "object": lambda value: isinstance(value, dict),
}


def checked(content: Mapping[str, Any], schema: Schema, source: str) -> dict[str, Any]:
    """Return `content` without those keys of `schema` that are null, which says the same as leaving them out.

    Raises `CheckpointError` naming `source` and the key for a value of another kind.
    """
    kept = {key: value for key, value in content.items() if value is not None or key not in schema}
    for key, kind in schema.items():
        if key in kept and not _CHECKS[kind](kept[key]):
            raise CheckpointError(
                f"{source} has {key}={str(kept[key])[:80]!r}, which is not a {kind}; correct the file"
            )
    return kept


CONFIG: Schema = {
    "architectures": "texts",
    "cls_token_id": "integer",
    "num_labels": "size",
    "position_embedding_type": "text",
    "problem_type": "text",
    "sep_token_id": "integer",
    "type_vocab_size": "integer",
}
"""`config.json`; keys that are written null on purpose, such as `pad_token_id`, are checked where they are read."""
MODULE_SETTINGS: Schema = {
    "config_args": "object",
    "config_kwargs": "object",
    "do_lower_case": "flag",
    "modality_config": "object",
    "processor_kwargs": "object",
    "query_expansion": "object",
    "tokenizer_args": "object",
    "transformer_task": "text",
}
SETTINGS: Schema = {
    "attend_to_expansion_tokens": "flag",
    "default_prompt_name": "text",
    "do_query_expansion": "flag",
    "document_prefix": "text",
    "model_type": "text",
    "prompts": "object",
    "query_expansion": "object",
    "query_length": "size",
    "query_prefix": "text",
    "skiplist_words": "texts",
}
MODULES: Schema = {
    "bias": "flag",
    "include_prompt": "flag",
    "module_input_name": "text",
    "pooling_mode": "text or texts",
    "skiplist_tasks": "text or texts",
    "skiplist_words": "texts",
    "use_residual": "flag",
}
"""The `config.json` of every kind of module."""
COLBERT_METADATA: Schema = {
    "attend_to_mask_tokens": "flag",
    "dim": "size",
    "doc_token_id": "text",
    "mask_punctuation": "flag",
    "query_maxlen": "size",
    "query_token_id": "text",
}
QUERY_EXPANSION: Schema = {"attend": "flag", "strategy": "text", "token": "text"}
GTE: Schema = {
    "hidden_size": "size",
    "num_attention_heads": "size",
    "rope_scaling": "object",
    "rope_theta": "number",
}
GTE_SCALING: Schema = {"factor": "number", "type": "text"}

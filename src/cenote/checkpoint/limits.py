"""How many tokens a model can take, special tokens included, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cenote.checkpoint.families import family_of, padding_idx
from cenote.checkpoint.spec import ExpansionSpec
from cenote.errors import CheckpointError

_NO_LIMIT = 10**9
"""Tokenizers without a limit write 1e30 (`VERY_LARGE_INTEGER`)."""


class Limit(NamedTuple):
    """A number of tokens and its reason."""

    tokens: int
    reason: str


_T5_LIMIT = Limit(512, "the length that T5 was trained with; nothing in the checkpoint says another")


def position_limit(config: Mapping[str, Any]) -> Limit | None:
    """Return what the position embeddings allow; `None` for relative positions, which end nowhere.

    Learned positions of the RoBERTa family begin at `padding_idx + 1`: 514 rows hold 512 tokens.
    """
    family = family_of(config["model_type"])
    if family.positions == "relative":
        return None
    rows = config.get("max_position_embeddings")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise CheckpointError(f"config.json must give max_position_embeddings as a positive number, not {rows!r}")
    if family.positions == "offset":
        reserved = padding_idx(config) + 1
        reason = f"max_position_embeddings {rows} in config.json, {reserved} of them before the first position"
        return Limit(rows - reserved, reason)
    return Limit(rows, "max_position_embeddings in config.json")


def input_limit(config: Mapping[str, Any], module: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> Limit:
    """Return the smallest limit that holds.

    `module` is the Transformer module's own configuration (`sentence_bert_config.json`), `tokenizer` is
    `tokenizer_config.json`. As in sentence-transformers, `max_seq_length` replaces the tokenizer's `model_max_length`;
    here it never lifts what the positions allow.
    """
    own = next(_own_limits(config, module, tokenizer), None)
    limits = [limit for limit in (position_limit(config), own) if limit is not None] or [_T5_LIMIT]
    smallest = min(limits, key=lambda limit: limit.tokens)
    if smallest.tokens < 1:
        raise CheckpointError(f"the input limit is {smallest.tokens} tokens ({smallest.reason}); the file is damaged")
    return smallest


def expansion_limit(limit: Limit, positions: Limit | None, expansion: ExpansionSpec) -> Limit:
    """Return the limit of a multi-vector model: its own lengths may be larger than `max_seq_length`, as in PyLate."""
    lengths = (expansion.query_length, expansion.document_length, expansion.fill_length)
    longest = max((length for length in lengths if length is not None), default=0)
    if longest <= limit.tokens:
        return limit
    own = Limit(longest, "query_length and document_length of the checkpoint")
    return own if positions is None or own.tokens <= positions.tokens else positions


def _own_limits(config: Mapping[str, Any], module: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> Iterator[Limit]:
    arguments = module.get("tokenizer_args") or module.get("processor_kwargs") or {}
    candidates = (
        (arguments.get("model_max_length"), "model_max_length in sentence-transformers' tokenizer arguments"),
        (module.get("max_seq_length"), "max_seq_length of sentence-transformers"),
        (tokenizer.get("model_max_length"), "model_max_length of the tokenizer"),
        (config.get("n_positions"), "n_positions in config.json, the length that it was trained with"),
    )
    for value, reason in candidates:
        if isinstance(value, int | float) and not isinstance(value, bool) and value < _NO_LIMIT:
            yield Limit(int(value), reason)

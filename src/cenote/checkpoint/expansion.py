"""ColBERT's lengths, markers and query expansion, in the spellings of three libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.schema import QUERY_EXPANSION, checked
from cenote.checkpoint.spec import ExpansionSpec
from cenote.errors import CheckpointError

_COLBERT_QUERY_LENGTH = 32


class Markers(NamedTuple):
    """Token ids put in front of a query's and a document's text."""

    query: int | None
    document: int | None


NO_MARKERS = Markers(None, None)


def expansion_spec(checkpoint: Checkpoint, settings: Mapping[str, Any], markers: Markers = NO_MARKERS) -> ExpansionSpec:
    """Return what sentence-transformers' `query_length`, `document_length` and `query_expansion` say.

    The strategy `fixed` cuts queries to `length` and fills them up to it; `min` only fills them up.
    """
    query_length, document_length = (_length(settings, key) for key in ("query_length", "document_length"))
    expansion = settings.get("query_expansion")
    if expansion is None:
        return ExpansionSpec(
            query_marker_id=markers.query,
            document_marker_id=markers.document,
            query_length=query_length,
            document_length=document_length,
        )
    expansion = checked(expansion, QUERY_EXPANSION, "query_expansion")
    fill = _length(expansion, "length")
    if fill is None or expansion.get("strategy") not in ("fixed", "min"):
        raise CheckpointError(f"{checkpoint.name} has a query_expansion that Cenote does not know: {expansion!r}")
    if expansion["strategy"] == "fixed":
        query_length = fill
    return ExpansionSpec(
        query_marker_id=markers.query,
        document_marker_id=markers.document,
        query_length=None if query_length is None else max(query_length, fill),
        document_length=document_length,
        expand_queries=True,
        fill_length=fill,
        mask_token_id=_fill_token(checkpoint, expansion.get("token")),
        attend_to_expansion=bool(expansion.get("attend", False)),
    )


def pylate_expansion(checkpoint: Checkpoint, markers: Markers) -> ExpansionSpec:
    """Return what PyLate's flat keys say; expansion is on unless `do_query_expansion` is false."""
    settings = dict(checkpoint.settings)
    if "query_expansion" not in settings and settings.get("do_query_expansion") is not False:
        settings["query_expansion"] = {
            "strategy": "fixed",
            "attend": bool(settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))),
            "length": settings.get("query_length") or _COLBERT_QUERY_LENGTH,
        }
    return expansion_spec(checkpoint, settings, markers)


def stanford_expansion(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> ExpansionSpec:
    """Return what `artifact.metadata` says, with ColBERT's own defaults where it says nothing.

    Stanford's ColBERT writes its markers over the place behind [CLS] and always fills queries up with [MASK].
    """
    source = "artifact.metadata"
    markers = Markers(
        checkpoint.vocabulary.require(metadata.get("query_token_id") or "[unused0]", source),
        checkpoint.vocabulary.require(metadata.get("doc_token_id") or "[unused1]", source),
    )
    settings = {
        "document_length": metadata.get("doc_maxlen"),
        "query_expansion": {
            "strategy": "fixed",
            "attend": bool(metadata.get("attend_to_mask_tokens")),
            "length": metadata.get("query_maxlen") or _COLBERT_QUERY_LENGTH,
        },
    }
    return expansion_spec(checkpoint, settings, markers)


def split_prefixes(checkpoint: Checkpoint) -> tuple[Markers, dict[str, str]]:
    """Return PyLate's prefixes as marker ids, and the prompts without them.

    A prefix that the tokenizer knows as one token (with or without its trailing space) is a marker; any other is text
    in front of the prompt.
    """
    prompts = {name: text for name, text in (checkpoint.settings.get("prompts") or {}).items() if isinstance(text, str)}
    markers: dict[str, int | None] = {}
    for name in ("query", "document"):
        prefix = checkpoint.settings.get(f"{name}_prefix") or ""
        marker = checkpoint.vocabulary.token_id(prefix) if prefix else None
        if marker is None and prefix.strip():
            marker = checkpoint.vocabulary.token_id(prefix.strip())
        markers[name] = marker
        prompt = prompts.get(name, "").removeprefix(prefix)
        prompts[name] = prompt if marker is not None else prefix + prompt
    return Markers(markers["query"], markers["document"]), prompts


def _length(settings: Mapping[str, Any], key: str) -> int | None:
    value = settings.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{key} must be a positive number of tokens, not {value!r}")
    return value


def _fill_token(checkpoint: Checkpoint, token: str | None) -> int:
    """Return the token that queries are filled up with: the one that is named, else [MASK], else the end of text."""
    if token is not None:
        return checkpoint.vocabulary.require(token, "query_expansion")
    found = checkpoint.vocabulary.special("mask_token")
    found = checkpoint.vocabulary.special("eos_token") if found is None else found
    if found is None:
        raise CheckpointError(
            f"{checkpoint.name} expands queries, but its tokenizer has no mask token to fill them with"
        )
    return found

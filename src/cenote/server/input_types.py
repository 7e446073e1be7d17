"""The words that clients have for what a text is for, and what the engine makes of each."""

from __future__ import annotations

from collections.abc import Mapping

from cenote.core import EngineInfo
from cenote.errors import InputError
from cenote.params import InputType

_INPUT_TYPES: Mapping[str, InputType] = {
    "query": "query",
    "search_query": "query",
    "retrieval.query": "query",
    "document": "document",
    "search_document": "document",
    "passage": "document",
    "retrieval.passage": "document",
}
_OTHER_USES = frozenset({"classification", "clustering", "separation", "text-matching"})
"""Uses that have a prompt only where the checkpoint has one of that very name."""


def read_input_type(word: str | None, info: EngineInfo, param: str) -> tuple[InputType | None, str | None]:
    """Return the `input_type` and the `prompt_name` that `word` means for a model.

    A prompt of the checkpoint that has the word as its name is used; else queries and documents get what the checkpoint
    has for those, and other uses get none. Raises `InputError` about the field `param` for a word that nobody knows.
    """
    if word is None:
        return None, None
    prompt_name = word if word in info.prompts and word not in ("query", "document") else None
    if word not in _INPUT_TYPES and word not in _OTHER_USES and prompt_name is None:
        known = ", ".join(sorted({*_INPUT_TYPES, *_OTHER_USES, *info.prompts}))
        raise InputError(f"{param} {word[:100]!r} is not known here; known: {known}", param=param)
    return _INPUT_TYPES.get(word), prompt_name

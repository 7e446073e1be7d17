"""What the routes that show single tokens have in common: how much text they take."""

from __future__ import annotations

from typing import Any

from cenote.errors import OversizeError

MAX_CHARACTERS = 1_000_000
"""Most characters of one request: a token is a hundred times larger in an answer than in a text."""


def check_characters(texts: Any, param: str) -> None:
    """Raise `OversizeError` for more text than these routes take; what is no text the engine refuses."""
    strings = [texts] if isinstance(texts, str) else texts
    if not isinstance(strings, list):
        return
    size = sum(len(each) for each in strings if isinstance(each, str | list))
    if size > MAX_CHARACTERS:
        raise OversizeError(f"`{param}` has {size} characters; at most {MAX_CHARACTERS} fit into one request")

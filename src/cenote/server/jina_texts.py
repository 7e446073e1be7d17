"""The texts of Jina's bodies: strings, or objects with a string `text`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SkipValidation

from cenote.errors import InputError

JinaTexts = Annotated[
    SkipValidation[str | list[str | dict[str, Any]]],
    Field(description="One text or a list; an item may be an object with a string `text`."),
]


def texts_of(value: Any) -> Any:
    """Return strings for objects that have a `text`; the engine refuses what is wrong by its position."""
    if not isinstance(value, list):
        return value
    return [_text_of(item, index) for index, item in enumerate(value)]


def _text_of(item: Any, index: int) -> Any:
    if not isinstance(item, dict):
        return item
    if not isinstance(item.get("text"), str) or len(item) > 1:
        raise InputError(
            f"input[{index}] must be a string or an object with a string `text` alone: images are not read",
            param="input",
            index=index,
        )
    return item["text"]

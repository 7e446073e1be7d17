"""What the bodies of TEI's routes have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from cenote.server.schemas import ModelName, RequestBody, Truncate


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


Direction = Annotated[
    Literal["left", "right"] | None,
    BeforeValidator(_lower),
    WithJsonSchema({"anyOf": [{"enum": ["Left", "Right", "left", "right"]}, {"type": "null"}]}),
    Field(description="The end that is cut, in any case; right by default."),
]


class TeiBody(RequestBody):
    """The fields of nearly every route. `model` goes beyond TEI, which serves one."""

    model: ModelName = None
    truncate: Truncate = None
    truncation_direction: Direction = None

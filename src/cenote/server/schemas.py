"""The bodies that several dialects share, as schemas: requests are validated by them, answers described."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SkipValidation,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cenote.errors import InputError
from cenote.text.options import TruncationSide

_DIGITS = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _whole_or_digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else _whole(value)


def _whole_ids(value: Any) -> Any:
    """Return a list of whole floats, or of lists of those, with integers. A list is judged by what it begins with."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [_whole_list(each) for each in value]
    return _whole_list(value)


def _whole_list(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], float):
        return [_whole(each) for each in value]
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer as JSON defines it: 64.0 is one."""
WholeOrDigits = Annotated[int, BeforeValidator(_whole_or_digits)]
"""The same, for the APIs whose own servers also take "64"."""

WholeIds = BeforeValidator(_whole_ids)
"""Reads the token ids of a field that is otherwise left to the engine."""


@dataclass(frozen=True)
class Refused:
    """Marks a field of the real API that would change the answer and is not done: a value other than `harmless` ones
    is an error that names the field. `reason` reads on from its name.
    """

    reason: str
    harmless: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Return whether `value` asks for nothing."""
        return value is None or any(type(value) is type(each) and value == each for each in self.harmless)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [*self.harmless, None]}

    def _check(self, value: Any) -> None:
        if not self.allows(value):
            raise PydanticCustomError("refused", "{reason}", {"reason": self.reason})


@dataclass(frozen=True)
class NoMeaning:
    """Marks a field that is taken and ignored: it changes no number, no order, and nothing of what is read."""


def agreed(**values: Any) -> Any:
    """Return the one value of several fields that mean the same, `None` where none is given.

    Raises `InputError` where they contradict each other.
    """
    given = {name: value for name, value in values.items() if value is not None}
    first, *others = given or [""]
    for name in others:
        if given[name] != given[first]:
            raise InputError(f"`{name}` and `{first}` contradict each other: leave one of them out", param=name)
    return given.get(first)


ModelName = Annotated[str | None, Field(description="A served model; may be left out where there is only one.")]
TextsOrIds = Annotated[
    SkipValidation[str | list[str] | list[int] | list[list[int]]],
    WholeIds,
    Field(
        description="One text, a list of texts, one text as token ids, or a list of those. Ids are used as they are."
    ),
]
"""Checked by the engine, which names the item that is wrong."""
PromptName = Annotated[str | None, Field(description="Add the prompt of this name in the checkpoint.")]
_DIMENSIONS = Field(description="Keep this many first values (matryoshka).")
Dimensions = Annotated[Whole | None, _DIMENSIONS]
DimensionsOrDigits = Annotated[WholeOrDigits | None, _DIMENSIONS]
Normalize = Annotated[bool | None, Field(description="L2-normalise or not; by default as the checkpoint says.")]
Truncate = Annotated[bool | None, Field(description="Cut texts over the limit (default), or refuse them.")]
TopN = Annotated[WholeOrDigits | None, Field(description="Give only the best.")]
Ignored = Annotated[str | None, NoMeaning(), Field(description="Taken and ignored.")]
IgnoredNumber = Annotated[WholeOrDigits | None, NoMeaning(), Field(description="Taken and ignored.")]
UseActivation = Annotated[
    bool | None,
    Field(description="Whether the last step runs: L2, softmax or sigmoid; by default as the checkpoint says."),
]
Side = Annotated[TruncationSide | None, Field(description="The end that is cut; by default the tokenizer's.")]
TruncatePromptTokens = Annotated[
    WholeOrDigits | None, Field(description="Cut to so many tokens, special ones included; -1 is the model's limit.")
]
ChatTemplate = Annotated[Any, Refused("is not read: this server writes messages out by the checkpoint's own template")]
Padding = Annotated[Any, Refused("is never done: texts are not padded", ("do_not_pad",))]
LateChunking = Annotated[
    Any, Refused("is not read: use Jina's `late_chunking`, or Voyage's route /v1/contextualizedembeddings")
]
OfImages = Annotated[Any, Refused("is refused: images are not read, the served models read text", ({}, []))]


class RequestBody(BaseModel):
    """A request: `null` means absent and unknown fields are ignored, since clients and proxies send both."""

    model_config = ConfigDict(strict=True, extra="ignore")


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """How errors look to OpenAI's clients."""

    error: ErrorDetail


class DetailBody(BaseModel):
    """How errors look to Jina's and Voyage's clients."""

    detail: str


class AnyErrorDetail(BaseModel):
    """`code` is a number where vLLM's clients are meant."""

    message: str
    type: str
    param: str | None
    code: str | int | None


class AnyError(BaseModel):
    """How errors look on the bare paths: to everybody's clients."""

    error: AnyErrorDetail
    message: str
    detail: str


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class TotalUsage(BaseModel):
    """`prompt_tokens`, the same number, is there on the bare paths only."""

    total_tokens: int
    prompt_tokens: int | None = None


class Sparse(BaseModel):
    """A vector of vocabulary size by its non-zero terms, token ids rising."""

    indices: list[int]
    values: list[float]
    tokens: list[str] | None = None


class Embedding(BaseModel):
    """One vector. `truncated` is there, and true, only on the bare paths and where the text was cut; the other outputs
    are there where they were asked for.
    """

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    truncated: bool | None = None
    sparse: Sparse | None = None
    multi_vector: list[list[float]] | list[str] | None = None


class EmbeddingsAnswer(BaseModel):
    """The vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class RankedDocument(BaseModel):
    index: int
    relevance_score: float
    document: dict[str, Any] | None = None

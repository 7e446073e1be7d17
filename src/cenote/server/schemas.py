"""The bodies that several dialects share, as schemas: requests are validated by them, answers described."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

ModelName = Annotated[str | None, Field(description="A served model; may be left out where there is only one.")]
TextsOrIds = Annotated[
    SkipValidation[str | list[str] | list[int] | list[list[int]]],
    Field(
        description="One text, a list of texts, one text as token ids, or a list of those. Ids are used as they are."
    ),
]
"""Checked by the engine, which names the item that is wrong."""
PromptName = Annotated[str | None, Field(description="Add the prompt of this name in the checkpoint.")]
Dimensions = Annotated[int | None, Field(description="Keep this many first values (matryoshka).")]
Normalize = Annotated[bool | None, Field(description="L2-normalise or not; by default as the checkpoint says.")]
Truncate = Annotated[bool | None, Field(description="Cut texts over the limit (default), or refuse them.")]
TopN = Annotated[int | None, Field(description="Give only the best.")]
Ignored = Annotated[str | None, Field(description="Taken and ignored.")]


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

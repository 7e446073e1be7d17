"""Jina's `POST /v1/embeddings` and `POST /v1/multi-vector`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.errors import InputError
from cenote.outputs import Float32Array, Usage
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedBody, EmbedRequest, MultiVectorOptions, TextFields
from cenote.server.embedding import embed, embed_pieces, embedding_items, encode, list_response, usage_of
from cenote.server.encodings import Encoding, EncodingName
from cenote.server.jina_texts import JinaTexts, texts_of
from cenote.server.schemas import (
    DimensionsOrDigits,
    Embedding,
    Normalize,
    Refused,
    Truncate,
    WholeOrDigits,
    agreed,
)
from cenote.server.schemas import Usage as UsageBody

EncodingNames = EncodingName | list[EncodingName]


class JinaEmbeddingsBody(EmbedBody, TextFields):
    """Texts to embed. `input_type`, `prompt_name` and the fields of vLLM's go beyond Jina's."""

    input: JinaTexts
    task: str | None = Field(
        None,
        description="`retrieval.query` or `retrieval.passage`; another use by the checkpoint's prompt of that name.",
    )
    dimensions: DimensionsOrDigits = None
    late_chunking: bool | None = Field(None, description="Read all texts as one, and embed each in that context.")
    embedding_type: EncodingNames | None = Field(None, description="One encoding, or several at once.")
    encoding_type: EncodingNames | None = Field(None, description="The same, as LlamaIndex writes it.")
    encoding_format: EncodingName | None = Field(None, description="The same, as OpenAI's clients write it.")
    normalized: Normalize = None
    truncate: Truncate = None
    input_type: str | None = Field(None, description="Beyond Jina: the same as `task`, which goes first.")
    return_multivector: Annotated[Any, Refused("is for /v1/multi-vector to give", (False,))] = None


class JinaMultiVectorBody(EmbedBody):
    """Texts to embed, one vector for each token."""

    input: JinaTexts
    embedding_type: EncodingNames | None = Field(None, description="One encoding, or several at once.")
    dimensions: WholeOrDigits | None = Field(None, description="Keep this many first values of each vector.")
    truncate: Truncate = None


class JinaEmbedding(Embedding):
    """One vector; where several encodings were asked for, an object that has it in each."""

    embedding: list[float] | str | dict[str, list[float] | str]  # type: ignore[assignment]


class JinaEmbeddingsAnswer(BaseModel):
    """The vectors in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[JinaEmbedding]
    model: str
    usage: UsageBody


class JinaMultiVector(BaseModel):
    object: Literal["embeddings"] = "embeddings"
    index: int
    embeddings: list[list[float]] | list[str] | dict[str, list[list[float]] | list[str]]


class JinaMultiVectorAnswer(BaseModel):
    """The vectors of each text in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[JinaMultiVector]
    model: str
    usage: UsageBody


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input` on its own, or all of them in one context."""
    body: JinaEmbeddingsBody = call.body
    names = _names(body.embedding_type or body.encoding_type or body.encoding_format)
    request = replace(
        body.request(texts_of(body.input), [Encoding.named(name) for name in names]),
        encoding_param="embedding_type",
        input_type=body.task or body.input_type,
        input_type_param="task" if body.task else "input_type",
        dimensions=body.dimensions,
        normalize=agreed(normalized=body.normalized, use_activation=body.use_activation),
        truncate=body.truncate,
        truncation_side=body.truncation_side,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        add_special_tokens=body.add_special_tokens,
    )
    if body.late_chunking:
        name, vectors, usage = await _embed_in_context(call, request)
        return list_response(embedding_items(_in_each(vectors, names), [], call), name, usage_of(usage.total_tokens))
    name, values = await embed(call, request)
    items = embedding_items(_in_each(values, names), values.truncated, call)
    return list_response(items, name, usage_of(sum(values.num_tokens)))


async def create_multi_vectors(call: Call) -> Response:
    """Embed every item of `input`, one vector for each token."""
    body: JinaMultiVectorBody = call.body
    names = _names(body.embedding_type)
    request = replace(body.request(texts_of(body.input)), truncate=body.truncate)
    name, encoded = await encode(call, request, ["multi_vector"], MultiVectorOptions(dimensions=body.dimensions))
    items = [
        {"object": "embeddings", "index": index, "embeddings": _together(vectors, names)}
        for index, vectors in enumerate(encoded.multi_vector or ())
    ]
    return list_response(items, name, usage_of(encoded.usage.total_tokens))


async def _embed_in_context(call: Call, request: EmbedRequest) -> tuple[str, Float32Array, Usage]:
    """Embed the texts as the pieces of one text (late chunking)."""
    pieces = [request.texts] if isinstance(request.texts, str) else request.texts
    try:
        name, found = await embed_pieces(call, request, [pieces])
    except InputError as error:
        raise _about_the_only(error) from None
    return name, found[0].vectors, found.usage


def _about_the_only(error: InputError) -> InputError:
    """Return `error` without the position of the one text, whose pieces are the caller's items."""
    message = str(error).replace("input[0]", "input")
    if error.param == "input[0]":
        return type(error)(message, param="input", index=error.index)
    return type(error)(message, param=error.param, index=None if error.param == "input" else error.index)


def _names(value: EncodingNames | None) -> list[EncodingName]:
    if isinstance(value, str):
        return [value]
    return value or ["float"]


def _in_each(vectors: Float32Array, names: Sequence[EncodingName]) -> list[Any]:
    """Return each vector in the one encoding that was asked for, or an object that has it in each of several."""
    columns = {name: Encoding.named(name).rows(vectors, "embedding_type") for name in names}
    if len(columns) == 1:
        return list(next(iter(columns.values())))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _together(vectors: Any, names: Sequence[EncodingName]) -> Any:
    columns = {name: Encoding.named(name).rows(vectors, "embedding_type") for name in names}
    return next(iter(columns.values())) if len(columns) == 1 else columns

"""Cenote's own route `POST /v1/encode`: dense, sparse and multi-vector of each text from one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.outputs import Encoded
from cenote.params import Output
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.embed_request import EmbedBody, MultiVectorOptions
from cenote.server.embedding import encode, list_response, sparse_item, usage_of
from cenote.server.encodings import Encoding, EncodingName, Row
from cenote.server.failures import Failure
from cenote.server.schemas import ErrorBody, Sparse, TextsOrIds, Truncate, Usage, Whole


class EncodeBody(EmbedBody):
    """Texts, and which outputs of the model to give."""

    input: TextsOrIds
    outputs: list[Output] | None = Field(None, description="What to give; by default all that the model has.")
    dimensions: Whole | None = Field(None, description="Keep this many first values of dense vectors.")
    multi_vector_dimensions: Whole | None = Field(None, description="Keep this many first values of multi-vectors.")
    normalize: bool | None = Field(None, description="L2-normalise dense vectors or not; by default as the model says.")
    encoding_format: EncodingName | None = Field(None, description="How dense vectors and multi-vectors are written.")
    return_tokens: bool | None = Field(None, description="Add the vocabulary's strings to sparse vectors.")
    truncate: Truncate = None


class EncodedText(BaseModel):
    """What was asked for of one text. `truncated` is there, and true, only where the text was cut."""

    object: Literal["encoding"] = "encoding"
    index: int
    dense: list[float] | str | None = None
    sparse: Sparse | None = None
    multi_vector: list[list[float]] | list[str] | None = None
    truncated: bool | None = None


class EncodeAnswer(BaseModel):
    """The texts in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[EncodedText]
    model: str
    usage: Usage


async def create_encodings(call: Call) -> Response:
    """Give every output that is asked for from one pass of the model."""
    body: EncodeBody = call.body
    encoding = Encoding.named(body.encoding_format)
    request = replace(
        body.request(body.input, [encoding]),
        dimensions=body.dimensions,
        normalize=body.normalize,
        truncate=body.truncate,
    )
    options = MultiVectorOptions(
        dimensions=body.multi_vector_dimensions,
        dtype="float16" if encoding.type == "float16" else None,
        return_tokens=body.return_tokens is True,
    )
    name, encoded = await encode(call, request, body.outputs, options)
    dense = None if encoded.dense is None else encoding.rows(encoded.dense, "encoding_format")
    items = [_item(index, encoded, dense, encoding) for index in range(len(encoded.truncated))]
    return list_response(items, name, usage_of(encoded.usage.total_tokens))


def _item(index: int, encoded: Encoded, dense: list[Row] | None, encoding: Encoding) -> dict[str, Any]:
    item: dict[str, Any] = {"object": "encoding", "index": index}
    if dense is not None:
        item["dense"] = dense[index]
    if encoded.sparse is not None:
        item["sparse"] = sparse_item(encoded.sparse[index])
    if encoded.multi_vector is not None:
        item["multi_vector"] = encoding.rows(encoded.multi_vector[index], "encoding_format")
    if encoded.truncated[index]:
        item["truncated"] = True
    return item


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"error": {...}}`, as OpenAI's dialect does."""
    return {"error": failed.nested()}


ENCODE = Dialect(
    name="encode",
    operations=(
        Operation(
            method="POST",
            path="/v1/encode",
            handler=create_encodings,
            summary="Give several outputs of each text",
            body=EncodeBody,
            answer=EncodeAnswer,
        ),
    ),
    error_body=error_body,
    failure_body=ErrorBody,
)

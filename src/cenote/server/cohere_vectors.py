"""Cohere's `POST /v1/embed` and `POST /v2/embed`: bodies, answer and handlers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.errors import InputError
from cenote.outputs import Embeddings
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedBody, EmbedRequest
from cenote.server.embedding import embed
from cenote.server.encodings import Encoding, EncodingName
from cenote.server.schemas import DimensionsOrDigits, IgnoredNumber, OfImages, RequestBody, WholeOrDigits
from cenote.text.options import TruncationSide
from cenote.text.unicode import scalar_text

MAX_TEXTS = 96
"""Cohere's own limit, which its client keeps to by itself; it holds under the prefix only."""

Truncate = Literal["NONE", "START", "END"]
_SIDES: Mapping[str, TruncationSide] = {"START": "left", "END": "right"}


class CohereContentPart(RequestBody):
    type: str
    text: str | None = None


class CohereInput(RequestBody):
    content: list[CohereContentPart]


class CohereEmbedBody(EmbedBody):
    """Texts to embed. Fields of one version of the API are read in the other, too."""

    texts: list[str] | None = Field(None, description="Up to 96 texts, on the bare path more.")
    images: OfImages = None
    input_type: str | None = Field(
        None, description="`search_query` or `search_document`; another use by the checkpoint's prompt of that name."
    )
    embedding_types: list[EncodingName] | None = Field(None, description="What to give; several at once if you like.")
    truncate: Truncate | None = Field(None, description="Which end of a long text is cut: END (default), START, NONE.")
    inputs: list[CohereInput] | None = Field(None, description="Instead of `texts`: contents of one text part each.")
    max_tokens: WholeOrDigits | None = Field(
        None, description="Cut texts to this many tokens, where the model's limit is larger."
    )
    output_dimension: DimensionsOrDigits = None
    priority: IgnoredNumber = None


class CohereEmbedAnswer(BaseModel):
    """`embeddings` is a list of vectors where no `embedding_types` were asked for, else one list for each type."""

    id: str
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: list[list[float]] | dict[str, list[list[float]] | list[str]]
    texts: list[str]
    meta: dict[str, Any]


async def embed_v1(call: Call) -> Response:
    """Embed texts; the answer is a list of vectors where no types are asked for."""
    body: CohereEmbedBody = call.body
    request = _request(body)
    _, values = await embed(call, request)
    answer = _answer(call, values, request.texts, "1")
    if not body.embedding_types:
        floats = Encoding().rows(values, "embedding_types")
        return json_response(answer | {"response_type": "embeddings_floats", "embeddings": floats})
    return json_response(answer | _by_type(values, body.embedding_types))


async def embed_v2(call: Call) -> Response:
    """Embed texts in each of the types that are asked for."""
    body: CohereEmbedBody = call.body
    request = _request(body)
    _, values = await embed(call, request)
    return json_response(
        _answer(call, values, request.texts, "2") | _by_type(values, body.embedding_types or ["float"])
    )


def _request(body: CohereEmbedBody) -> EmbedRequest:
    return replace(
        body.request(_texts(body), [Encoding.named(name) for name in body.embedding_types or ()]),
        texts_param="texts",
        encoding_param="embedding_types",
        dimensions=body.output_dimension,
        truncate=body.truncate != "NONE",
        truncation_side=_SIDES.get(body.truncate or "END"),
        max_tokens=body.max_tokens,
        max_items=MAX_TEXTS,
    )


def _texts(body: CohereEmbedBody) -> list[str]:
    """Return the texts of `texts` or of `inputs`, of which exactly one must be there."""
    inputs = body.inputs
    if body.texts is not None and inputs is not None:
        raise InputError("give `texts` or `inputs`, not both", param="inputs")
    if body.texts is not None:
        return body.texts
    if inputs is None:
        raise InputError("`texts` is required", param="texts")
    return [_text_of(each, index) for index, each in enumerate(inputs)]


def _text_of(each: CohereInput, index: int) -> str:
    texts = [part.text for part in each.content if part.type == "text"]
    if len(each.content) != 1 or len(texts) != 1 or texts[0] is None:
        raise InputError(
            f"inputs[{index}].content must have one part of the type text: other parts are not read",
            param="inputs",
            index=index,
        )
    return texts[0]


def _answer(call: Call, values: Embeddings, texts: list[str], version: str) -> dict[str, Any]:
    tokens = {"input_tokens": sum(values.num_tokens)}
    meta = {"api_version": {"version": version}, "billed_units": tokens}
    if version == "2":
        meta["tokens"] = tokens
    return {"id": call.record.request_id, "texts": [scalar_text(text) for text in texts], "meta": meta}


def _by_type(values: Embeddings, names: Sequence[EncodingName]) -> dict[str, Any]:
    rows = {name: Encoding.named(name).rows(values, "embedding_types") for name in names}
    return {"response_type": "embeddings_by_type", "embeddings": rows}

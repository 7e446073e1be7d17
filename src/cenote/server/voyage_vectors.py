"""Voyage's `POST /v1/embeddings` and `POST /v1/contextualizedembeddings`: bodies, answers and handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedBody, EmbedRequest, TextFields
from cenote.server.embedding import check_number, embed, embed_pieces, embedding_items, list_response, usage_of
from cenote.server.encodings import Encoding, VectorType
from cenote.server.schemas import DimensionsOrDigits, Embedding, TotalUsage, Truncate

MAX_TEXTS = 1000
"""Voyage's own limit; it holds under the prefix only."""


class VoyageVectorsBody(EmbedBody):
    """What is asked of vectors. `prompt_name` goes beyond Voyage's fields."""

    output_dimension: DimensionsOrDigits = None
    output_dtype: VectorType | None = Field(None, description="The type of the values, `float` by default.")
    encoding_format: Literal["base64"] | None = Field(None, description="Base64 of the values' bytes, not numbers.")


class VoyageEmbeddingsBody(VoyageVectorsBody, TextFields):
    """Texts to embed. The fields of vLLM's go beyond Voyage's."""

    input: SkipValidation[str | list[str]] = Field(description="One text or a list of up to 1000, on bare paths more.")
    truncation: Truncate = None


class VoyageContextualizedBody(VoyageVectorsBody):
    """Texts in pieces, each piece to be embedded in the context of its text."""

    inputs: list[list[str]] = Field(description="The pieces of each text.")


class VoyageEmbeddingsAnswer(BaseModel):
    """The vectors in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: TotalUsage


class VoyagePieces(BaseModel):
    """The vectors of one text's pieces."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    index: int


class VoyageContextualizedAnswer(BaseModel):
    """The texts in the order of `inputs`."""

    object: Literal["list"] = "list"
    data: list[VoyagePieces]
    model: str
    usage: TotalUsage


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input`."""
    body: VoyageEmbeddingsBody = call.body
    request, encoding = _request(body, body.input, "input")
    request = replace(
        request,
        normalize=body.use_activation,
        truncate=body.truncation,
        truncation_side=body.truncation_side,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        add_special_tokens=body.add_special_tokens,
    )
    name, values = await embed(call, request)
    items = embedding_items(encoding.rows(values, "output_dtype"), values.truncated, call)
    return voyage_list(call, items, name, sum(values.num_tokens))


async def create_contextualized_embeddings(call: Call) -> Response:
    """Embed every piece in the context of its text."""
    body: VoyageContextualizedBody = call.body
    request, encoding = _request(body, body.inputs, "inputs")
    check_number([piece for text in body.inputs for piece in text], "inputs", call)
    name, found = await embed_pieces(call, request, body.inputs)
    items = [
        {
            "object": "list",
            "data": embedding_items(encoding.rows(chunks.vectors, "output_dtype"), [], call),
            "index": index,
        }
        for index, chunks in enumerate(found)
    ]
    return voyage_list(call, items, name, found.usage.total_tokens)


def voyage_list(call: Call, items: list[dict[str, Any]], name: str, total_tokens: int) -> Response:
    """Return the `items` as Voyage's answer."""
    usage = {"total_tokens": total_tokens} if call.exact else usage_of(total_tokens)
    return list_response(items, name, usage)


def _request(body: VoyageVectorsBody, texts: Any, param: str) -> tuple[EmbedRequest, Encoding]:
    encoding = Encoding(type=body.output_dtype or "float", base64=body.encoding_format == "base64")
    request = replace(
        body.request(texts, [encoding]),
        texts_param=param,
        encoding_param="output_dtype",
        dimensions=body.output_dimension,
        max_items=MAX_TEXTS,
    )
    return request, encoding

"""Voyage's API: `POST /v1/embeddings`, `POST /v1/contextualizedembeddings`, `POST /v1/rerank`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.server.answers import json_response
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.embedding import EmbedRequest, check_number, embed, embed_pieces, embedding_items, usage_of
from cenote.server.encodings import Encoding, VectorType
from cenote.server.failures import Failure
from cenote.server.ranking import RankRequest, rank
from cenote.server.schemas import (
    DetailBody,
    Dimensions,
    Embedding,
    ModelName,
    PromptName,
    RequestBody,
    TopN,
    TotalUsage,
    Truncate,
)
from cenote.text.unicode import scalar_text

MAX_TEXTS = 1000
"""Voyage's own limit; it holds under the prefix only."""


class VoyageVectorsBody(RequestBody):
    """What is asked of vectors. `prompt_name` goes beyond Voyage's fields."""

    model: ModelName = None
    input_type: str | None = Field(None, description="`query` or `document`: add the prompt that the checkpoint has.")
    output_dimension: Dimensions = None
    output_dtype: VectorType | None = Field(None, description="The type of the values, `float` by default.")
    encoding_format: Literal["base64"] | None = Field(None, description="Base64 of the values' bytes, not numbers.")
    prompt_name: PromptName = None


class VoyageEmbeddingsBody(VoyageVectorsBody):
    """Texts to embed."""

    input: SkipValidation[str | list[str]] = Field(description="One text or a list of up to 1000, on bare paths more.")
    truncation: Truncate = None


class VoyageContextualizedBody(VoyageVectorsBody):
    """Texts in pieces, each piece to be embedded in the context of its text."""

    inputs: list[list[str]] = Field(description="The pieces of each text.")


class VoyageRerankBody(RequestBody):
    """A query and its documents."""

    query: str
    documents: list[str]
    model: ModelName = None
    top_k: TopN = None
    truncation: Truncate = None
    return_documents: bool | None = Field(None, description="Give the documents back; by default not.")


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


class VoyageRanked(BaseModel):
    index: int
    relevance_score: float
    document: str | None = None


class VoyageRerankAnswer(BaseModel):
    """The documents, the best one first."""

    object: Literal["list"] = "list"
    data: list[VoyageRanked]
    model: str
    usage: TotalUsage


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input`."""
    body: VoyageEmbeddingsBody = call.body
    request, encoding = _request(body, body.input, "input", truncate=body.truncation)
    name, values = await embed(call, request)
    items = embedding_items(encoding.rows(values, "output_dtype"), values.truncated, call)
    return _list_of(call, items, name, sum(values.num_tokens))


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
    return _list_of(call, items, name, found.usage.total_tokens)


async def rerank(call: Call) -> Response:
    """Rank documents, which come back as strings where they are asked for."""
    body: VoyageRerankBody = call.body
    request = RankRequest(
        model=body.model, query=body.query, documents=body.documents, top_n=body.top_k, truncate=body.truncation
    )
    name, ranking = await rank(call, request)
    items: list[dict[str, Any]] = [{"index": each.index, "relevance_score": each.score} for each in ranking]
    if body.return_documents:
        for item in items:
            item["document"] = scalar_text(body.documents[item["index"]])
    return _list_of(call, items, name, ranking.usage.total_tokens)


def _request(
    body: VoyageVectorsBody, texts: Any, param: str, *, truncate: bool | None = None
) -> tuple[EmbedRequest, Encoding]:
    encoding = Encoding(type=body.output_dtype or "float", base64=body.encoding_format == "base64")
    request = EmbedRequest(
        model=body.model,
        texts=texts,
        texts_param=param,
        encodings=[encoding],
        encoding_param="output_dtype",
        input_type=body.input_type,
        prompt_name=body.prompt_name,
        dimensions=body.output_dimension,
        truncate=truncate,
        max_items=MAX_TEXTS,
    )
    return request, encoding


def _list_of(call: Call, items: list[dict[str, Any]], name: str, total_tokens: int) -> Response:
    usage = {"total_tokens": total_tokens} if call.exact else usage_of(total_tokens)
    return json_response({"object": "list", "data": items, "model": name, "usage": usage})


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"detail": ...}`."""
    return {"detail": failed.message}


def status(failed: Failure) -> int:
    """Return 400 for an unknown model, too."""
    return 400 if failed.code == "model_not_found" else failed.status


_WORDS = {"dimensions": "output_dimension", "top_n": "top_k"}

VOYAGE = Dialect(
    name="voyage",
    operations=(
        Operation(
            method="POST",
            path="/v1/embeddings",
            handler=create_embeddings,
            summary="Embed texts",
            body=VoyageEmbeddingsBody,
            answer=VoyageEmbeddingsAnswer,
            marks=frozenset({"output_dimension", "output_dtype", "truncation"}),
            words=_WORDS,
        ),
        Operation(
            method="POST",
            path="/v1/contextualizedembeddings",
            handler=create_contextualized_embeddings,
            summary="Embed the pieces of texts in their context",
            body=VoyageContextualizedBody,
            answer=VoyageContextualizedAnswer,
            words=_WORDS,
        ),
        Operation(
            method="POST",
            path="/v1/rerank",
            aliases=("/rerank",),
            handler=rerank,
            summary="Rank documents by their relevance to a query",
            body=VoyageRerankBody,
            answer=VoyageRerankAnswer,
            marks=frozenset({"top_k", "truncation"}),
            words=_WORDS,
        ),
    ),
    error_body=error_body,
    failure_body=DetailBody,
    status=status,
)

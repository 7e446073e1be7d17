"""OpenAI's API: `POST /v1/embeddings`, `GET /v1/models`, `GET /v1/models/{model}`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.engine import AsyncEngine
from cenote.params import Output
from cenote.server.answers import json_response
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.embed_request import EmbedBody, EmbedRequest, MultiVectorOptions
from cenote.server.embedding import embed, embedding_items, encode, list_response, sparse_item, usage_of
from cenote.server.encodings import Encoding, EncodingName
from cenote.server.failures import Failure
from cenote.server.schemas import Dimensions, EmbeddingsAnswer, ErrorBody, Ignored, Normalize, TextsOrIds
from cenote.text.long_texts import LongTexts

_TRUNCATE = {True: True, False: False, "END": True, "NONE": False}


class EmbeddingsRequest(EmbedBody):
    """Texts to embed. `input_type`, `prompt_name` and the fields after `user` go beyond OpenAI's."""

    input: TextsOrIds
    encoding_format: EncodingName | None = Field(
        None, description="`float` (default), `base64` of little-endian float32, or smaller numbers."
    )
    dimensions: Dimensions = None
    user: Ignored = None
    normalize: Normalize = None
    truncate: bool | Literal["END", "NONE"] | None = Field(
        None, description="Cut texts over the limit at their end (default), or refuse them: false or NONE."
    )
    long_texts: LongTexts | None = Field(
        None, description="The same choice, or `chunk`: read a long text in blocks and average their vectors."
    )
    chunk_overlap: int | None = Field(None, description="Tokens that neighbouring blocks share.")
    outputs: list[Output] | None = Field(
        None, description="What to give beside the dense `embedding` of each text, from the same pass."
    )


class Model(BaseModel):
    """One served model. The fields after `owned_by` go beyond OpenAI's and are there on the bare paths only."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    tasks: list[str] | None = None
    dimensions: int | None = None
    max_model_len: int | None = None


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[Model]


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input` in one engine call."""
    body: EmbeddingsRequest = call.body
    encoding = Encoding.named(body.encoding_format)
    request = replace(
        body.request(body.input, [encoding]),
        dimensions=body.dimensions,
        normalize=body.normalize,
        truncate=None if body.truncate is None else _TRUNCATE[body.truncate],
        long_texts=body.long_texts,
        chunk_overlap=body.chunk_overlap,
    )
    if body.outputs:
        return await _with_outputs(call, request, body.outputs)
    name, values = await embed(call, request)
    items = embedding_items(encoding.rows(values, "encoding_format"), values.truncated, call)
    return list_response(items, name, usage_of(sum(values.num_tokens)))


async def _with_outputs(call: Call, request: EmbedRequest, outputs: list[Output]) -> Response:
    wanted = list(dict.fromkeys(["dense", *outputs]))
    name, encoded = await encode(call, request, wanted, MultiVectorOptions())
    (encoding,) = request.encodings
    assert encoded.dense is not None
    items = embedding_items(encoding.rows(encoded.dense, "encoding_format"), encoded.truncated, call)
    for index, item in enumerate(items):
        if encoded.sparse is not None:
            item["sparse"] = sparse_item(encoded.sparse[index])
        if encoded.multi_vector is not None:
            item["multi_vector"] = encoding.rows(encoded.multi_vector[index], "encoding_format")
    return list_response(items, name, usage_of(encoded.usage.total_tokens))


async def list_models(call: Call) -> Response:
    """List the served models."""
    return json_response({"object": "list", "data": [_model(name, call) for name in call.models.names]})


async def retrieve_model(call: Call) -> Response:
    """Describe one served model."""
    return json_response(_model(call.path["model"], call))


def _model(name: str, call: Call) -> dict[str, Any]:
    name, engine = call.models.find(name)
    model = {"id": name, "object": "model", "created": call.models.started, "owned_by": "cenote"}
    return model if call.exact else model | _facts(engine)


def _facts(engine: AsyncEngine) -> dict[str, Any]:
    info = engine.info
    return {"tasks": info.tasks, "dimensions": info.dimensions, "max_model_len": info.max_length}


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"error": {...}}`, from which the `openai` package takes message, type, param and code."""
    return {"error": failed.nested()}


OPENAI = Dialect(
    name="openai",
    operations=(
        Operation(
            method="POST",
            path="/v1/embeddings",
            aliases=("/embeddings",),
            handler=create_embeddings,
            summary="Embed texts",
            body=EmbeddingsRequest,
            answer=EmbeddingsAnswer,
        ),
        Operation(
            method="GET", path="/v1/models", handler=list_models, summary="List the served models", answer=ModelList
        ),
        Operation(
            method="GET",
            path="/v1/models/{model:path}",
            handler=retrieve_model,
            summary="Describe a served model",
            answer=Model,
        ),
    ),
    error_body=error_body,
    failure_body=ErrorBody,
)

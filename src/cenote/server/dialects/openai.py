"""OpenAI's API: `POST /v1/embeddings`, `GET /v1/models`, `GET /v1/models/{model}`.

`null` means absent and unknown fields are ignored, since clients and proxies send both.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation
from starlette.responses import Response

from cenote.engine import AsyncEngine
from cenote.errors import InputError
from cenote.outputs import Embeddings
from cenote.params import InputType
from cenote.server.arrays import base64_rows, float_rows, to_json
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.failures import Failure
from cenote.server.served import ServedModels

_INPUT_TYPES: dict[str, InputType] = {
    "query": "query",
    "search_query": "query",
    "document": "document",
    "search_document": "document",
    "passage": "document",
}
"""`input_type` as Cohere, Voyage and NVIDIA's clients write it, too."""

_TRUNCATE = {True: True, False: False, "END": True, "NONE": False}


class EmbeddingsRequest(BaseModel):
    """Texts to embed. The fields after `user` go beyond OpenAI's."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input: SkipValidation[str | list[str] | list[int] | list[list[int]]] = Field(
        description="One text, a list of texts, one text as token ids, or a list of those. Ids are used as they are."
    )
    model: str | None = Field(None, description="A served model; may be left out where there is only one.")
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`float` (default), or `base64` of little-endian float32."
    )
    dimensions: int | None = Field(None, description="Keep this many first values (matryoshka).")
    user: str | None = Field(None, description="Taken and ignored.")
    input_type: Literal["query", "search_query", "document", "search_document", "passage"] | None = Field(
        None, description="Add the prompt that the checkpoint defines for queries or for documents."
    )
    prompt_name: str | None = Field(None, description="Add the prompt of this name in the checkpoint.")
    normalize: bool | None = Field(None, description="L2-normalise or not; by default as the checkpoint says.")
    truncate: bool | Literal["END", "NONE"] | None = Field(
        None, description="Cut texts over the limit at their end (default), or refuse them: false or NONE."
    )


class Embedding(BaseModel):
    """One vector. `truncated` is there, and true, only where the text was cut."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    truncated: bool | None = None


class EmbeddingsUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """The vectors in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage


class Model(BaseModel):
    """One served model. The fields after `owned_by` go beyond OpenAI's."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    tasks: list[str]
    dimensions: int | None
    max_model_len: int


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[Model]


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """How every error looks."""

    error: ErrorDetail


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input` in one engine call."""
    request: EmbeddingsRequest = call.body
    name, engine = call.models.find(request.model)
    call.record.model = name
    _check_number(request.input, call.options.max_items)
    values = await engine.embed(
        request.input,
        input_type=None if request.input_type is None else _INPUT_TYPES[request.input_type],
        dimensions=request.dimensions,
        normalize=request.normalize,
        prompt_name=request.prompt_name,
        truncate=True if request.truncate is None else _TRUNCATE[request.truncate],
        param="input",
    )
    call.record.add(values.usage)
    return _json(_embeddings_answer(name, values, request.encoding_format))


async def list_models(call: Call) -> Response:
    """List the served models."""
    data = [_model(name, call.models) for name in call.models.names]
    return _json({"object": "list", "data": data})


async def retrieve_model(call: Call) -> Response:
    """Describe one served model."""
    return _json(_model(call.path["model"], call.models))


def _check_number(texts: object, max_items: int) -> None:
    if not isinstance(texts, list) or (texts and isinstance(texts[0], int)):
        return  # one text
    if len(texts) > max_items:
        raise InputError(f"`input` has {len(texts)} items; at most {max_items} fit into one request", param="input")


def _embeddings_answer(name: str, values: Embeddings, encoding_format: str | None) -> dict[str, Any]:
    rows = base64_rows(values) if encoding_format == "base64" else float_rows(values)
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    for item, truncated in zip(data, values.truncated, strict=True):
        if truncated:
            item["truncated"] = True
    tokens = sum(values.num_tokens)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def _model(name: str, models: ServedModels) -> dict[str, Any]:
    name, engine = models.find(name)
    return {"id": name, "object": "model", "created": models.started, "owned_by": "cenote", **_facts(engine)}


def _facts(engine: AsyncEngine) -> dict[str, Any]:
    info = engine.info
    return {"tasks": info.tasks, "dimensions": info.dimensions, "max_model_len": info.max_length}


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")


def failure(failed: Failure) -> Response:
    """Write `{"error": {...}}`, from which the `openai` package takes message, type, param and code."""
    kind = "rate_limit_error" if failed.status == 429 else "invalid_request_error"
    kind = "server_error" if failed.status >= 500 else kind
    detail = {"message": failed.message, "type": kind, "param": failed.param, "code": failed.code}
    body = to_json({"error": detail})
    return Response(body, failed.status, headers=dict(failed.headers), media_type="application/json")


OPENAI = Dialect(
    name="openai",
    operations=(
        Operation(
            method="POST",
            path="/v1/embeddings",
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
    failure=failure,
    failure_body=ErrorBody,
)

"""OpenAI's API: `POST /v1/embeddings`, `GET /v1/models`, `GET /v1/models/{model}`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from cenote.engine import AsyncEngine
from cenote.params import Output
from cenote.server.answers import json_response
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.embed_request import EmbedBody, EmbedRequest, MultiVectorOptions, TextsOrChats
from cenote.server.embedding import embed, embedding_items, encode, list_response, sparse_item, texts_or_chats, usage_of
from cenote.server.encodings import Encoding, EncodingName, Endianness, byte_order
from cenote.server.failures import Failure
from cenote.server.schemas import (
    Dimensions,
    EmbeddingsAnswer,
    ErrorBody,
    Ignored,
    LateChunking,
    Normalize,
    Whole,
    agreed,
)
from cenote.text.long_texts import LongTexts


class EmbeddingsRequest(EmbedBody, TextsOrChats):
    """Texts to embed. Only `input`, `model`, `encoding_format`, `dimensions` and `user` are OpenAI's own; those of
    vLLM, whose clients ask the same path, are among the others.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["input"]})  # `messages` instead is vLLM's form

    encoding_format: EncodingName | None = Field(
        None, description="`float` (default), `base64` of little-endian float32, or smaller numbers."
    )
    dimensions: Dimensions = None
    user: Ignored = None
    normalize: Normalize = None
    truncate: bool | Literal["START", "END", "NONE"] | None = Field(
        None, description="Cut texts over the limit (default), at their START or END, or refuse them: false or NONE."
    )
    long_texts: LongTexts | None = Field(
        None, description="The same choice, or `chunk`: read a long text in blocks and average their vectors."
    )
    chunk_overlap: Whole | None = Field(None, description="Tokens that neighbouring blocks share.")
    outputs: list[Output] | None = Field(
        None, description="What to give beside the dense `embedding` of each text, from the same pass."
    )
    embed_dtype: Literal["float32", "float16"] | None = Field(None, description="Of base64.")
    endianness: Endianness | None = Field(None, description="Of base64; by default little.")
    late_chunking_params: LateChunking = None

    def encoding(self) -> Encoding:
        """Return how vectors are written."""
        if self.encoding_format != "base64":
            return Encoding.named(self.encoding_format)
        return Encoding(
            type="float16" if self.embed_dtype == "float16" else "float",
            base64=True,
            order=byte_order(self.endianness) if self.endianness else "little",
        )

    def embed_request(self, texts: Any, param: str) -> EmbedRequest:
        """Return what is asked of `texts`, which came as the field `param`."""
        side = {"START": "left", "END": "right"}.get(str(self.truncate))
        return replace(
            self.request(texts, [self.encoding()]),
            texts_param=param,
            dimensions=self.dimensions,
            normalize=agreed(normalize=self.normalize, use_activation=self.use_activation),
            truncate=None if self.truncate is None else self.truncate not in (False, "NONE"),
            truncation_side=agreed(truncation_side=self.truncation_side, truncate=side),
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            add_special_tokens=self.add_special_tokens,
            long_texts=self.long_texts,
            chunk_overlap=self.chunk_overlap,
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
    request = body.embed_request(*await texts_or_chats(call, body, body.model))
    if body.outputs:
        return await _with_outputs(call, request, body.outputs)
    name, values = await embed(call, request)
    (encoding,) = request.encodings
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


WORDS = {"max_length": "truncate_prompt_tokens", "template_values": "chat_template_kwargs"}

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
            words=WORDS,
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

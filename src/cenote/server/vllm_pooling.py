"""vLLM's `POST /pooling`, `POST /classify` and `POST /v1/embeddings`: bodies, answers and handlers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from cenote.core import EngineInfo
from cenote.errors import InputError
from cenote.outputs import SparseVector
from cenote.params import OutputDtype, PoolingParams, Task
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedBody, TextsOrChats
from cenote.server.embedding import check_number, cut_length, find_model, prompt_of, sparse_item, texts_or_chats
from cenote.server.schemas import Ignored, LateChunking, ModelName, Refused, Whole, WholeOrDigits
from cenote.server.vllm_answer import EncodingFields, Values, VllmAnswer, answer_head

Removed = Annotated[Any, Refused("was removed; use `use_activation`")]


class PromptBody(TextsOrChats):
    """What the routes have in common."""

    model: ModelName = None
    user: Ignored = None
    normalize: Removed = None

    def truncation(self, info: EngineInfo) -> dict[str, Any]:
        """Return the engine's options for the tokens of texts; long ones are refused unless a number is given."""
        return {
            "truncate": self.truncate_prompt_tokens is not None,
            "max_tokens": cut_length(self.truncate_prompt_tokens, info),
            "truncation_side": self.truncation_side,
            "add_special_tokens": self.add_special_tokens is not False,
        }


class ParamsBody(BaseModel):
    """The options of one task, by the names of `PoolingParams`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    use_activation: bool | None = None
    dimensions: Whole | None = None
    output_dtype: OutputDtype | None = None
    step_tag_id: Whole | None = None
    returned_token_ids: list[Whole] | None = None
    segments: list[list[Whole]] | None = None


class VllmPoolingBody(PromptBody, EncodingFields):
    """Texts to pool, without prompts, markers or expansion."""

    task: Task | None = Field(None, description="What to compute; by default the first task of the model.")
    dimensions: Annotated[Any, Refused("is not taken here; put it into `params`")] = None
    params: ParamsBody | None = Field(
        None, description="Beyond vLLM: the task's options, by the names of `PoolingParams`."
    )
    data: Annotated[Any, Refused("is for plugins, of which there are none: give `input` or `messages`")] = None


class VllmClassifyBody(PromptBody):
    """Texts to label."""


class VllmEmbeddingsBody(EmbedBody, PromptBody, EncodingFields):
    """Texts to embed, without a prompt unless `input_type` or `prompt_name`, which go beyond vLLM, ask for one."""

    dimensions: WholeOrDigits | None = Field(None, description="Keep this many first values (matryoshka).")
    late_chunking_params: LateChunking = None


class VllmPooled(BaseModel):
    """What the task gives for one text. `shape` is there on the bare path only, where `data` is base64."""

    index: int
    object: Literal["pooling"] = "pooling"
    data: list[float] | list[list[float]] | str | dict[str, list[int] | list[float] | list[str]]
    shape: list[int] | None = None


class VllmClass(BaseModel):
    index: int
    label: str
    probs: list[float]
    num_classes: int


class VllmPoolingAnswer(VllmAnswer):
    """The texts in the order of `input`."""

    data: list[VllmPooled]


class VllmClassifyAnswer(VllmAnswer):
    """The texts in the order of `input`."""

    data: list[VllmClass]


class VllmEmbedding(BaseModel):
    index: int
    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str


class VllmEmbeddingsAnswer(VllmAnswer):
    """The texts in the order of `input`."""

    data: list[VllmEmbedding]


async def pooling(call: Call) -> Response:
    """Pool every text or conversation for one task."""
    body: VllmPoolingBody = call.body
    name, engine = find_model(call, body.model)
    texts, param = await _read(call, body)
    task = _task(body, engine.info)
    values = await engine.pool(texts, task, _params(body), **body.truncation(engine.info), param=param)
    call.record.add(values.usage)
    head = answer_head("pooling", name, call, values.usage)
    if body.wants_bytes:
        return body.bytes_response(head, [_plain(value) for value in values])
    data = [{"index": i, "object": "pooling", **_written(value, body, call)} for i, value in enumerate(values)]
    return json_response(head | {"data": data})


async def classify(call: Call) -> Response:
    """Label every text or conversation with the model's own labels."""
    body: VllmClassifyBody = call.body
    name, engine = find_model(call, body.model)
    texts, param = await _read(call, body)
    raw_scores = None if body.use_activation is None else not body.use_activation
    found = await engine.classify(texts, raw_scores=raw_scores, **body.truncation(engine.info), param=param)
    call.record.add(found.usage)
    data = [
        {"index": i, "label": each.label, "probs": list(each.scores.values()), "num_classes": len(each.scores)}
        for i, each in enumerate(found)
    ]
    return json_response(answer_head("classify", name, call, found.usage) | {"data": data})


async def embeddings(call: Call) -> Response:
    """Embed every text or conversation."""
    body: VllmEmbeddingsBody = call.body
    name, engine = find_model(call, body.model)
    texts, param = await _read(call, body)
    input_type, prompt_name = prompt_of(body.request(texts), engine.info)
    values = await engine.embed(
        texts,
        input_type=input_type,
        prompt_name=prompt_name,
        prompt="" if input_type is None and prompt_name is None else None,
        dimensions=body.dimensions,
        normalize=body.use_activation,
        **body.truncation(engine.info),
        param=param,
    )
    assert values.usage is not None
    call.record.add(values.usage)
    head = answer_head("embd", name, call, values.usage)
    if body.wants_bytes:
        return body.bytes_response(head, list(np.asarray(values)))
    rows = [body.written(row) for row in np.asarray(values)]
    return json_response(
        head | {"data": [{"index": i, "object": "embedding", "embedding": row} for i, row in enumerate(rows)]}
    )


async def _read(call: Call, body: PromptBody) -> tuple[Any, str]:
    texts, param = await texts_or_chats(call, body, body.model)
    check_number(texts, param, call)
    return texts, param


def _task(body: VllmPoolingBody, info: EngineInfo) -> Task:
    task = body.task or info.tasks[0]
    if task not in info.tasks:
        offered = ", ".join(info.tasks)
        raise InputError(f"model {info.name!r} does not offer the task {task!r}; it offers: {offered}", param="task")
    return task


def _params(body: VllmPoolingBody) -> PoolingParams:
    given = body.params or ParamsBody()
    ids, segments = given.returned_token_ids, given.segments
    return PoolingParams(
        use_activation=given.use_activation if body.use_activation is None else body.use_activation,
        dimensions=given.dimensions,
        output_dtype=given.output_dtype,
        step_tag_id=given.step_tag_id,
        returned_token_ids=None if ids is None else tuple(ids),
        segments=None if segments is None else tuple(map(tuple, segments)),  # type: ignore[arg-type]
    )


def _written(value: Values | SparseVector, body: VllmPoolingBody, call: Call) -> dict[str, Any]:
    if body.encoding_format != "base64":
        return {"data": sparse_item(value) if isinstance(value, SparseVector) else value}
    values = _plain(value)
    return {"data": body.written(values)} | ({} if call.exact else {"shape": list(values.shape)})


def _plain(value: Values | SparseVector) -> Values:
    if isinstance(value, SparseVector):
        raise InputError("`encoding_format` of sparse vectors is float only", param="encoding_format")
    return value

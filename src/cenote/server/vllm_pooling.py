"""vLLM's `POST /pooling` and `POST /classify`: bodies, answers and handlers."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from cenote.core import EngineInfo
from cenote.errors import InputError
from cenote.outputs import SparseVector
from cenote.params import OutputDtype, PoolingParams, Task
from cenote.server.answers import json_response, to_json
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, find_model, sparse_item
from cenote.server.schemas import Ignored, ModelName, RequestBody, TextsOrIds
from cenote.server.vllm_answer import VllmAnswer, answer_head
from cenote.text.options import TruncationSide

Pooled = Sequence[npt.NDArray[np.generic] | SparseVector]
Endianness = Literal["native", "little", "big"]


class PromptBody(RequestBody):
    """What the routes have in common."""

    input: TextsOrIds
    model: ModelName = None
    user: Ignored = None
    use_activation: bool | None = Field(
        None, description="Whether the last step runs: L2, softmax or sigmoid; by default as the checkpoint says."
    )
    truncate_prompt_tokens: int | None = Field(
        None, description="Cut texts to so many tokens, -1 for the model's limit; by default long ones are refused."
    )
    truncation_side: TruncationSide | None = Field(None, description="The end that is cut; by default the tokenizer's.")
    add_special_tokens: bool | None = Field(None, description="Only true; for other tokens send token ids.")


class ParamsBody(BaseModel):
    """The options of one task, by the names of `PoolingParams`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    use_activation: bool | None = None
    dimensions: int | None = None
    output_dtype: OutputDtype | None = None
    step_tag_id: int | None = None
    returned_token_ids: list[int] | None = None
    segments: list[list[int]] | None = None


class VllmPoolingBody(PromptBody):
    """Texts to pool, without prompts, markers or expansion."""

    task: Task | None = Field(None, description="What to compute; by default the first task of the model.")
    dimensions: int | None = Field(None, description="Refused, as vLLM does; put it into `params`.")
    params: ParamsBody | None = Field(
        None, description="Beyond vLLM: the task's options, by the names of `PoolingParams`."
    )
    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] | None = Field(
        None, description="JSON numbers (default), base64, or a body of bytes with or without a header `metadata`."
    )
    embed_dtype: Literal["float32", "float16"] | None = Field(None, description="Of base64 and bytes.")
    endianness: Endianness | None = Field(None, description="Of base64 and bytes.")


class VllmClassifyBody(PromptBody):
    """Texts to label."""


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


async def pooling(call: Call) -> Response:
    """Pool every text of `input` for one task."""
    body: VllmPoolingBody = call.body
    name, engine = find_model(call, body.model)
    check_number(body.input, "input", call)
    task = _task(body, engine.info)
    values = await engine.pool(body.input, task, _params(body), **_truncation(body, engine.info), param="input")
    call.record.add(values.usage)
    head = answer_head("pooling", name, call, values.usage)
    if body.encoding_format in ("bytes", "bytes_only"):
        return _bytes_response(head, [_typed(value, body) for value in values], body)
    data = [{"index": i, "object": "pooling", **_written(value, body, call)} for i, value in enumerate(values)]
    return json_response(head | {"data": data})


async def classify(call: Call) -> Response:
    """Label every text of `input` with the model's own labels."""
    body: VllmClassifyBody = call.body
    name, engine = find_model(call, body.model)
    check_number(body.input, "input", call)
    raw_scores = None if body.use_activation is None else not body.use_activation
    found = await engine.classify(body.input, raw_scores=raw_scores, **_truncation(body, engine.info), param="input")
    call.record.add(found.usage)
    data = [
        {"index": i, "label": each.label, "probs": list(each.scores.values()), "num_classes": len(each.scores)}
        for i, each in enumerate(found)
    ]
    return json_response(answer_head("classify", name, call, found.usage) | {"data": data})


def _task(body: VllmPoolingBody, info: EngineInfo) -> Task:
    if body.dimensions is not None:
        raise InputError("`dimensions` is not taken here; put it into `params`", param="dimensions")
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


def _truncation(body: PromptBody, info: EngineInfo) -> dict[str, Any]:
    """Return the engine's options for long texts, which are refused unless a number of tokens is given."""
    if body.add_special_tokens is False:
        raise InputError(
            "`add_special_tokens` may only be true: for other tokens send token ids", param="add_special_tokens"
        )
    tokens = body.truncate_prompt_tokens
    if tokens is not None and (tokens < -1 or tokens == 0 or tokens > info.max_length):
        raise InputError(
            f"`truncate_prompt_tokens` must be -1 or from 1 to {info.max_length}, not {tokens}. "
            "Please request a smaller truncation size.",
            param="truncate_prompt_tokens",
        )
    return {
        "truncate": tokens is not None,
        "max_tokens": None if tokens == -1 else tokens,
        "truncation_side": body.truncation_side,
    }


def _written(value: npt.NDArray[np.generic] | SparseVector, body: VllmPoolingBody, call: Call) -> dict[str, Any]:
    if body.encoding_format != "base64":
        return {"data": sparse_item(value) if isinstance(value, SparseVector) else value}
    typed = _typed(value, body)
    written: dict[str, Any] = {"data": base64.b64encode(typed.tobytes()).decode("ascii")}
    return written if call.exact else written | {"shape": list(typed.shape)}


def _typed(value: npt.NDArray[np.generic] | SparseVector, body: VllmPoolingBody) -> npt.NDArray[Any]:
    """Return the values in the type and byte order that are asked for."""
    if isinstance(value, SparseVector):
        raise InputError("`encoding_format` of sparse vectors is float only", param="encoding_format")
    return value.astype(np.dtype(body.embed_dtype or "float32").newbyteorder(body.endianness or "native"))


def _bytes_response(head: dict[str, Any], values: list[npt.NDArray[Any]], body: VllmPoolingBody) -> Response:
    content = b"".join(value.tobytes() for value in values)
    if body.encoding_format == "bytes_only":
        return Response(content, media_type="application/octet-stream")
    ends = np.cumsum([value.nbytes for value in values]).tolist()
    order = sys.byteorder if body.endianness in ("native", None) else body.endianness
    data = [
        {"index": i, "embed_dtype": body.embed_dtype or "float32", "endianness": order, "shape": list(value.shape)}
        | {"start": end - value.nbytes, "end": end}
        for i, (value, end) in enumerate(zip(values, ends, strict=True))
    ]
    usage = {key: head["usage"][key] for key in ("prompt_tokens", "total_tokens")}
    metadata = {key: head[key] for key in ("id", "created", "model")} | {"data": data, "usage": usage}
    headers = {"metadata": to_json(metadata).decode("utf-8")}
    return Response(content, media_type="application/octet-stream", headers=headers)

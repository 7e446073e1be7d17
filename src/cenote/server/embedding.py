"""Asking the engine for vectors, once for every dialect, and the answer that most of them give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from cenote.core import EngineInfo
from cenote.engine import AsyncEngine
from cenote.errors import InputError
from cenote.outputs import Answers, Chunks, Embeddings, Encoded, SparseVector
from cenote.params import OUTPUT_TASKS, Output
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedRequest, MultiVectorOptions, TextsOrChats
from cenote.server.encodings import Row
from cenote.server.input_types import read_input_type


async def embed(call: Call, request: EmbedRequest) -> tuple[str, Embeddings]:
    """Embed every text in one engine call; return the served model's name and the vectors."""
    name, engine = prepare(call, request)
    input_type, prompt_name = prompt_of(request, engine.info)
    values = await engine.embed(
        request.texts,
        input_type=input_type,
        prompt_name=prompt_name,
        dimensions=request.dimensions,
        normalize=request.normalize,
        truncate=request.truncate is not False,
        truncation_side=request.truncation_side,
        max_tokens=_limit(request, engine.info),
        add_special_tokens=request.add_special_tokens is not False,
        long_texts=request.long_texts,
        chunk_overlap=request.chunk_overlap or 0,
        param=request.texts_param,
    )
    call.record.add(values.usage)
    return name, values


async def encode(
    call: Call, request: EmbedRequest, outputs: Sequence[Output] | None, options: MultiVectorOptions
) -> tuple[str, Encoded]:
    """Give several `outputs` of every text from one pass; `None` means all that the model has."""
    name, engine = prepare(call, request)
    input_type, prompt_name = prompt_of(request, engine.info)
    offered = [output for output, task in OUTPUT_TASKS.items() if task in engine.info.tasks]
    encoded = await engine.encode(
        request.texts,
        # A model without any of them is refused by the engine, which names what the model has.
        outputs if outputs is not None else offered or ["dense"],
        input_type=input_type,
        prompt_name=prompt_name,
        dimensions=request.dimensions,
        normalize=request.normalize,
        multi_vector_dimensions=options.dimensions,
        multi_vector_dtype=options.dtype,
        return_tokens=options.return_tokens,
        truncate=request.truncate is not False,
        truncation_side=request.truncation_side,
        max_tokens=_limit(request, engine.info),
        add_special_tokens=request.add_special_tokens is not False,
        long_texts=request.long_texts,
        chunk_overlap=request.chunk_overlap or 0,
        param=request.texts_param,
    )
    call.record.add(encoded.usage)
    return name, encoded


async def embed_pieces(call: Call, request: EmbedRequest, texts: list[Any]) -> tuple[str, Answers[Chunks]]:
    """Embed the pieces of each of `texts` in their context (late chunking); `request.texts` is not read.

    A text over the limit is read in several contexts, or refused where `truncate` is off; nothing is cut off, so that
    other fields of truncation are refused.
    """
    for field in ("truncate_prompt_tokens", "truncation_side", "add_special_tokens"):
        if getattr(request, field) is not None:
            raise InputError(f"`{field}` is not for texts in pieces: leave it out", param=field)
    name, engine = prepare(call, request)
    input_type, prompt_name = prompt_of(request, engine.info)
    found = await engine.embed_chunks(
        texts,
        input_type=input_type,
        prompt_name=prompt_name,
        dimensions=request.dimensions,
        normalize=request.normalize,
        long_texts="error" if request.truncate is False else "chunk",
        param=request.texts_param,
    )
    call.record.add(found.usage)
    return name, found


def prepare(call: Call, request: EmbedRequest) -> tuple[str, AsyncEngine]:
    """Return the model that a request means. Raises `InputError` for what the engine does not check."""
    name, engine = find_model(call, request.model)
    check_number(request.texts, request.texts_param, call, request.max_items)
    width = request.dimensions or engine.info.dimensions
    for encoding in request.encodings:
        if width is not None:
            encoding.verify(width, request.encoding_param)
    return name, engine


async def texts_or_chats(call: Call, body: TextsOrChats, model: str | None) -> tuple[Any, str]:
    """Return the texts of a body, or the token ids of its conversations, and the name of the field that has them."""
    body.check_one_given()
    if body.messages is None:
        return body.input, "input"
    _, engine = find_model(call, model)
    batch = isinstance(body.messages, list) and bool(body.messages) and isinstance(body.messages[0], list)
    chats: list[Any] = body.messages if batch else [body.messages]
    check_number(chats, "messages", call)
    special = body.add_special_tokens is True
    tokens = [
        await engine.chat_tokens(
            chat,
            add_special_tokens=special,
            options=body.chat_options(f"messages[{index}]" if batch else "messages"),
        )
        for index, chat in enumerate(chats)
    ]
    return [each.ids for each in tokens], "messages"


def cut_length(tokens: int | None, info: EngineInfo) -> int | None:
    """Return the number of tokens that `truncate_prompt_tokens` means, `None` for the model's limit.

    Raises `InputError` for one that is no number of tokens of this model.
    """
    if tokens is not None and (tokens < -1 or tokens == 0 or tokens > info.max_length):
        raise InputError(
            f"`truncate_prompt_tokens` must be -1 or from 1 to {info.max_length}, not {tokens}. "
            "Please request a smaller truncation size.",
            param="truncate_prompt_tokens",
        )
    return None if tokens == -1 else tokens


def _limit(request: EmbedRequest, info: EngineInfo) -> int | None:
    length = cut_length(request.truncate_prompt_tokens, info)
    if length is not None and request.long_texts == "chunk":
        raise InputError(
            "`truncate_prompt_tokens` cuts texts, and long_texts chunk reads all of them: leave one of them out",
            param="truncate_prompt_tokens",
        )
    return request.max_tokens if length is None else length


def find_model(call: Call, model: str | None) -> tuple[str, AsyncEngine]:
    """Return the served model that a request means, and note its name."""
    name, engine = call.models.find(model)
    call.record.model = name
    return name, engine


def prompt_of(request: EmbedRequest, info: EngineInfo) -> tuple[Any, str | None]:
    """Return the engine's `input_type` and `prompt_name`; a `prompt_name` of the request goes first."""
    input_type, prompt_name = read_input_type(request.input_type, info, request.input_type_param)
    return input_type, request.prompt_name if request.prompt_name is not None else prompt_name


def check_number(texts: object, param: str, call: Call, max_items: int | None = None) -> None:
    """Raise `InputError` for more texts than fit into one request. A list of token ids is one text."""
    if not isinstance(texts, list) or (texts and isinstance(texts[0], int)):
        return
    most = min(call.options.max_items, max_items or call.options.max_items) if call.exact else call.options.max_items
    if len(texts) > most:
        raise InputError(f"`{param}` has {len(texts)} items; at most {most} fit into one request", param=param)


def embedding_items(rows: Sequence[Row], truncated: Sequence[bool], call: Call) -> list[dict[str, Any]]:
    """Return the items of OpenAI's `data`; those that were cut say so, where the answer may have such a field."""
    items: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    if not call.exact:
        for item, is_cut in zip(items, truncated, strict=False):
            if is_cut:
                item["truncated"] = True
    return items


def list_response(items: list[dict[str, Any]], name: str, usage: dict[str, int]) -> Response:
    """Return the `items` as the list that OpenAI's clients read, and its likes'."""
    return json_response({"object": "list", "data": items, "model": name, "usage": usage})


def usage_of(total_tokens: int) -> dict[str, int]:
    """Return OpenAI's `usage`."""
    return {"prompt_tokens": total_tokens, "total_tokens": total_tokens}


def sparse_item(vector: SparseVector) -> dict[str, Any]:
    """Return a sparse vector for `to_json`, its terms' strings with it where it has them."""
    item: dict[str, Any] = {"indices": vector.indices, "values": vector.values}
    return item if vector.tokens is None else item | {"tokens": vector.tokens}

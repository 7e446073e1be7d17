"""vLLM's `POST /tokenize` and `POST /detokenize`: bodies, answers and handlers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.engine import AsyncEngine
from cenote.errors import InputError
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import ChatFields
from cenote.server.embedding import find_model
from cenote.server.schemas import ModelName, OfImages, Refused, RequestBody, WholeIds
from cenote.server.token_routes import check_characters
from cenote.text.tokens import Tokens
from cenote.text.unicode import scalar_text


class VllmTokenizeBody(ChatFields):
    """A text or a conversation to take apart."""

    prompt: str | None = Field(None, description="The text.")
    messages: list[dict[str, Any]] | None = Field(
        None, description="Instead of `prompt`: messages for the checkpoint's chat template."
    )
    model: ModelName = None
    add_special_tokens: bool | None = Field(
        None, description="Put special tokens around: true by default for a text, false for messages."
    )
    return_token_strs: bool | None = Field(None, description="Add the vocabulary's string of each token.")
    tools: Annotated[Any, Refused("is not read: the served models call no tools", ([],))] = None
    mm_processor_kwargs: OfImages = None


class VllmDetokenizeBody(RequestBody):
    """Token ids to put together."""

    tokens: Annotated[SkipValidation[list[int]], WholeIds] = Field(description="The ids.")
    model: ModelName = None


class VllmTokens(BaseModel):
    """The ids of the text, special tokens included. `token_strs` are there where they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class VllmText(BaseModel):
    """The text of the ids, special tokens included."""

    prompt: str


async def tokenize(call: Call) -> Response:
    """Take a text or a conversation apart; nothing is cut."""
    body: VllmTokenizeBody = call.body
    _, engine = find_model(call, body.model)
    found = await _tokens(engine, body)
    strings = [scalar_text(string) for string in found.strings] if body.return_token_strs else None
    answer = {"count": len(found), "max_model_len": engine.info.max_length, "tokens": found.ids}
    return json_response(answer | {"token_strs": strings})


async def detokenize(call: Call) -> Response:
    """Put token ids together."""
    body: VllmDetokenizeBody = call.body
    _, engine = find_model(call, body.model)
    if not isinstance(body.tokens, list) or any(isinstance(each, list) for each in body.tokens):
        raise InputError("`tokens` must be one list of token ids", param="tokens")
    texts = await engine.detokenize(body.tokens, param="tokens")
    return json_response({"prompt": scalar_text(texts[0])})


async def _tokens(engine: AsyncEngine, body: VllmTokenizeBody) -> Tokens:
    if (body.prompt is None) == (body.messages is None):
        raise InputError("give `prompt` or `messages`, one of them", param="prompt")
    if body.prompt is not None:
        check_characters(body.prompt, "prompt")
        special = body.add_special_tokens is not False
        return (await engine.tokens(body.prompt, add_special_tokens=special, param="prompt"))[0]
    assert body.messages is not None
    check_characters([message.get("content") for message in body.messages], "messages")
    options = body.chat_options("messages", add_generation_prompt=not body.continue_final_message)
    return await engine.chat_tokens(body.messages, add_special_tokens=body.add_special_tokens is True, options=options)

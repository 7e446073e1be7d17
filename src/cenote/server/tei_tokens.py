"""TEI's `POST /tokenize` and `POST /decode`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel, SkipValidation
from starlette.responses import Response

from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, find_model
from cenote.server.schemas import ModelName, PromptName, RequestBody, WholeIds
from cenote.server.token_routes import check_characters
from cenote.text.tokens import Tokens
from cenote.text.unicode import scalar_text


class TeiTokenizeBody(RequestBody):
    """Texts to take apart. `model` goes beyond TEI."""

    inputs: SkipValidation[str | list[str]] = Field(description="One text or a list of texts.")
    add_special_tokens: bool | None = Field(None, description="Put special tokens around each text (default), or not.")
    prompt_name: PromptName = None
    model: ModelName = None


class TeiDecodeBody(RequestBody):
    """Token ids to put together. `model` goes beyond TEI."""

    ids: Annotated[SkipValidation[list[int] | list[list[int]]], WholeIds] = Field(
        description="One list of token ids or several."
    )
    skip_special_tokens: bool | None = Field(None, description="Leave special tokens out (default), or not.")
    model: ModelName = None


class TeiToken(BaseModel):
    """One token: `text[start:stop]`, in characters, or a special token, which has no place."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiTokens(RootModel[list[list[TeiToken]]]):
    """The tokens of each text."""


class TeiTextsAnswer(RootModel[list[str]]):
    """The text of each list of ids."""


async def tokenize(call: Call) -> Response:
    """Take every text of `inputs` apart; nothing is cut."""
    body: TeiTokenizeBody = call.body
    _, engine = find_model(call, body.model)
    check_number(body.inputs, "inputs", call)
    check_characters(body.inputs, "inputs")
    found = await engine.tokens(
        body.inputs,
        add_special_tokens=body.add_special_tokens is not False,
        prompt_name=body.prompt_name,
        param="inputs",
    )
    return json_response([_tokens(text) for text in found])


async def decode(call: Call) -> Response:
    """Put every list of `ids` together."""
    body: TeiDecodeBody = call.body
    _, engine = find_model(call, body.model)
    check_number(body.ids, "ids", call)
    texts = await engine.detokenize(body.ids, skip_special_tokens=body.skip_special_tokens is not False, param="ids")
    return json_response([scalar_text(text) for text in texts])


def _tokens(found: Tokens) -> list[dict[str, Any]]:
    rows = zip(found.ids, found.strings, found.special, found.offsets, strict=True)
    return [_token(found.text, *row) for row in rows]


def _token(text: str, token_id: int, string: str, special: bool, place: tuple[int, int]) -> dict[str, Any]:
    if special:
        return {"id": token_id, "text": string, "special": True, "start": None, "stop": None}
    start, stop = place
    return {"id": token_id, "text": text[start:stop], "special": False, "start": start, "stop": stop}

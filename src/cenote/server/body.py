"""Reading a request body: bounded, of the right type, and JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import Receive

from cenote.errors import InputError, MediaTypeError, OversizeError

_JSON_TYPE = re.compile(r"application/([^/]+\+)?json")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ClientGoneError(Exception):
    """The client closed the connection before its answer was ready."""


async def read_json(headers: Headers, receive: Receive, max_body_bytes: int) -> Any:
    """Read the whole body and return its JSON value.

    Raises `OversizeError`, `MediaTypeError`, `InputError` for what is wrong with it and `ClientGoneError` where the
    client left in the middle of it.
    """
    _check_type(headers)
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_body_bytes:
        raise _oversize(max_body_bytes)
    return parse_json(await _read(receive, max_body_bytes))


def parse_json(body: bytes) -> Any:
    """Return the JSON value of `body`.

    A lone surrogate in an escape passes, as it does in Python strings: the text policy decides about it. `NaN`,
    `Infinity` and invalid UTF-8 are refused.
    """
    if not body:
        raise InputError("the request has no body; it must be a JSON object")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not _ESCAPED_SURROGATE.search(body):
            raise InputError(f"the body is not valid JSON: {error}") from None
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not valid UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _check_type(headers: Headers) -> None:
    media_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if not _JSON_TYPE.fullmatch(media_type):
        raise MediaTypeError(f"content-type must be application/json, not {media_type[:100]!r}")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"content-encoding {encoding[:100]!r} is not read; send the body uncompressed")


async def _read(receive: Receive, max_body_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_body_bytes:
            raise _oversize(max_body_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _oversize(max_body_bytes: int) -> OversizeError:
    return OversizeError(f"the body is larger than {max_body_bytes} bytes; send fewer texts, or raise --max-body-bytes")

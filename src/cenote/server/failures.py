"""What went wrong with a request, free of any dialect: each dialect writes it in its own words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from cenote.errors import (
    BusyError,
    CenoteError,
    EmptyInputError,
    EngineClosedError,
    EngineError,
    InputError,
    MediaTypeError,
    SlowBodyError,
    TooLongError,
    UnknownModelError,
    UnsupportedTaskError,
)

MAX_MESSAGE_CHARACTERS = 1000
_UNEXPECTED = "the model failed on this request; the server's log says why, under the x-request-id of this answer"
"""What the model raised is not passed on: it may quote the texts of others, or how the server is set up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One failed request. `code` is a short stable word for programs, `param` the field at fault."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def nested(self) -> dict[str, Any]:
        """Return the object that OpenAI's clients, and those of its many likes, look for under `error`."""
        kind = "rate_limit_error" if self.status == 429 else "invalid_request_error"
        kind = "server_error" if self.status >= 500 else kind
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}


def failure_of(error: Exception) -> Failure:
    """Return what to tell the client about `error`. Nothing of an unexpected error goes out."""
    if isinstance(error, InputError):
        return Failure(
            status=error.status,
            message=_printable(_with_item(error)),
            param=error.param,
            code=_input_code(error),
            headers={"connection": "close"} if isinstance(error, SlowBodyError) else {},
        )
    if isinstance(error, BusyError):
        seconds = str(max(1, round(error.retry_after)))
        return Failure(
            status=error.status, message=_printable(str(error)), code="busy", headers={"retry-after": seconds}
        )
    if type(error) is EngineError:
        return Failure(status=error.status, message=_UNEXPECTED, code="engine_error")
    if isinstance(error, CenoteError):
        return Failure(
            status=error.status,
            message=_printable(str(error)),
            code=_CODES.get(error.status),
            headers={"retry-after": "1"} if isinstance(error, EngineClosedError) else {},
        )
    return Failure(status=500, message="internal error: see the log of the server", code="internal_error")


def failure_of_http(error: HTTPException, method: str, path: str) -> Failure:
    """Return the failure for a route or method that does not exist."""
    if error.status_code == 404:
        message = f"no route {method} {path}"
    elif error.status_code == 405:
        message = f"{path} does not take {method}; it takes {(error.headers or {}).get('Allow', 'another method')}"
    else:
        message = error.detail
    code = _CODES.get(error.status_code)
    return Failure(status=error.status_code, message=_printable(message), code=code, headers=error.headers or {})


def reworded(error: InputError, words: Mapping[str, str]) -> InputError:
    """Return `error` with the engine's names of arguments, the keys of `words`, as the client calls them."""
    if error.param is None or error.param not in words:
        return error
    message = re.sub(rf"(?<!\w){re.escape(error.param)}(?!\w)", words[error.param], str(error))
    return type(error)(message, param=words[error.param], index=error.index)


_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    500: "engine_error",
    503: "unavailable",
    504: "deadline",
}


def _input_code(error: InputError) -> str | None:
    if isinstance(error, TooLongError):
        return "context_length_exceeded"
    if isinstance(error, EmptyInputError):
        return "empty_input"
    if isinstance(error, UnknownModelError):
        return "model_not_found"
    if isinstance(error, UnsupportedTaskError):
        return "unsupported_task"
    if isinstance(error, SlowBodyError):
        return "slow_body"
    return "unsupported_media_type" if isinstance(error, MediaTypeError) else None


def _with_item(error: InputError) -> str:
    """Return the message with the position of the wrong item in it."""
    item = f"{error.param}[{error.index}]"
    if error.param is None or error.index is None or item in str(error):
        return str(error)
    return f"{item}: {error}"


def _printable(message: str) -> str:
    """Return `message` as text that fits into an answer: bounded, and valid Unicode whatever the client sent."""
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[:MAX_MESSAGE_CHARACTERS] + "..."
    return message.encode("utf-8", "replace").decode("utf-8")

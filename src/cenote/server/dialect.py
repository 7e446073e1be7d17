"""What one API dialect is: its operations, and how it writes an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import Response

from cenote.config import ServerOptions
from cenote.server.failures import Failure
from cenote.server.record import Record
from cenote.server.served import ServedModels


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request as a handler sees it: `body` is its operation's validated model, `path` the path's parameters."""

    body: Any
    path: Mapping[str, str]
    models: ServedModels
    options: ServerOptions
    record: Record


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One route. `body` is `None` where nothing is read; `answer` describes what comes back."""

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Call], Awaitable[Response]]
    summary: str
    answer: type[BaseModel]
    body: type[BaseModel] | None = None


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One API that clients speak. `name` is also the prefix under which its bodies and errors are exact."""

    name: str
    operations: tuple[Operation, ...]
    failure: Callable[[Failure], Response]
    """Write a failure as this dialect's clients expect it."""
    failure_body: type[BaseModel]

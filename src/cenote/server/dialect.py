"""What one API dialect is: its operations, and how it writes an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import Response

from cenote.config import ServerOptions
from cenote.server.answers import to_json
from cenote.server.failures import Failure
from cenote.server.record import Record
from cenote.server.served import ServedModels


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request as a handler sees it: `body` is its operation's validated model, `path` the path's parameters.

    `exact` says that it came in under the dialect's prefix: the answer has the dialect's own fields and no others.
    """

    body: Any
    path: Mapping[str, str]
    models: ServedModels
    options: ServerOptions
    record: Record
    exact: bool


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How an error is written, and the schema of that."""

    body: Callable[[Failure], dict[str, Any]]
    schema: type[BaseModel]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One route. `body` is `None` where nothing is read; `answer` describes what comes back.

    `marks` are the fields by which a body means this operation where several dialects share a bare path; an operation
    without any is meant where no other is. `aliases` are more bare paths; `is_own` operations have none, they answer
    under the prefix only. `words` are the engine's names of arguments that this operation calls otherwise: errors use
    them. `errors` is set where they look otherwise than those of the dialect. `answer` is `None` where nothing comes
    back but the status; `may_give_bytes` where a body may ask for something else than JSON.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Callable[[Call], Awaitable[Response]]
    summary: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    marks: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    is_own: bool = False
    may_give_bytes: bool = False
    errors: ErrorForm | None = None
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One API that clients speak. `name` is also the prefix under which its bodies, statuses and errors are exact."""

    name: str
    operations: tuple[Operation, ...]
    error_body: Callable[[Failure], dict[str, Any]]
    """The body that this dialect's clients expect."""
    failure_body: type[BaseModel]
    """The schema of `error_body`."""
    status: Callable[[Failure], int] = lambda failed: failed.status
    """The status that this dialect's clients expect."""

    def for_operation(self, operation: Operation) -> Dialect:
        """Return the dialect with the errors that this one of its operations has."""
        errors = operation.errors
        return self if errors is None else replace(self, error_body=errors.body, failure_body=errors.schema)

    def refusal(self, failed: Failure, *, exact: bool) -> Response:
        """Return the answer for a failed request; unless `exact`, with the fields that any other client looks for.

        There `error` is always an object: more clients read it so than as a string.
        """
        body = self.error_body(failed)
        if not exact:
            own = {key: value for key, value in body.items() if key != "error" or isinstance(value, dict)}
            body = {"error": failed.nested(), "message": failed.message, "detail": failed.message} | own
        status = self.status(failed)
        return Response(to_json(body), status, headers=dict(failed.headers), media_type="application/json")

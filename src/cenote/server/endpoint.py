"""The frame around every handler: body, validation, failures and disconnects, once for all dialects."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cenote.config import ServerOptions
from cenote.errors import CenoteError, EngineError, InputError
from cenote.server.body import ClientGoneError, read_json
from cenote.server.connection import while_connected
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.failures import failure_of
from cenote.server.observe import RECORD_KEY
from cenote.server.record import CLIENT_GONE_STATUS, Record
from cenote.server.served import ServedModels

logger = logging.getLogger(__name__)


class Endpoint:
    """One operation as an ASGI app. It always answers, unless the client has left."""

    def __init__(self, dialect: Dialect, operation: Operation, models: ServedModels, options: ServerOptions) -> None:
        self._dialect = dialect
        self._operation = operation
        self._models = models
        self._options = options
        self._adapter: TypeAdapter[Any] | None = TypeAdapter(operation.body) if operation.body else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope[RECORD_KEY]
        record.route = self._operation.path
        try:
            response = await self._answer(scope, receive, record)
        except ClientGoneError:
            record.status = CLIENT_GONE_STATUS
            return
        except Exception as error:
            if isinstance(error, EngineError) or not isinstance(error, CenoteError):
                logger.error("request %s failed", record.request_id, exc_info=error)
            response = self._dialect.failure(failure_of(error))
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, record: Record) -> Response:
        body = None
        if self._adapter is not None:
            value = await read_json(Headers(scope=scope), receive, self._options.max_body_bytes)
            body = _validated(self._adapter, value)
        call = Call(
            body=body, path=scope.get("path_params", {}), models=self._models, options=self._options, record=record
        )
        work = self._operation.handler(call)
        return await (work if body is None else while_connected(receive, work))


def _validated(adapter: TypeAdapter[Any], value: Any) -> BaseModel:
    if not isinstance(value, dict):
        raise InputError("the body must be a JSON object")
    try:
        model: BaseModel = adapter.validate_python(value)
    except ValidationError as error:
        raise _as_input_error(error) from None
    return model


def _as_input_error(error: ValidationError) -> InputError:
    """Return what is wrong with the first wrong field, without the value that the client sent."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    name = str(errors[0]["loc"][0])
    if errors[0]["type"] == "missing":
        return InputError(f"`{name}` is required", param=name)
    # A field of several types has one error for each of them.
    reasons = [each["msg"].removeprefix("Input ") for each in errors if each["loc"][0] == name]
    return InputError(f"`{name}` {', or '.join(reasons)}", param=name)

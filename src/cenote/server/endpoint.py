"""The frame around every handler: body, choice of dialect, validation, failures and disconnects, once for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cenote.config import ServerOptions
from cenote.errors import CenoteError, DeadlineError, EngineClosedError, EngineError, InputError, SlowBodyError
from cenote.server.body import ClientGoneError, read_json
from cenote.server.connection import while_connected
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.failures import failure_of, reworded
from cenote.server.gate import Gate
from cenote.server.observe import RECORD_KEY
from cenote.server.record import CLIENT_GONE_STATUS, Record
from cenote.server.schemas import NoMeaning, Refused
from cenote.server.served import ServedModels

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LATE = "the request was not done in time (request_timeout): send fewer texts, or again later"


@dataclass(frozen=True)
class Offer:
    """One dialect's operation on a path."""

    dialect: Dialect
    operation: Operation


def choose(offers: Sequence[Offer], body: Any) -> Offer:
    """Return the offer that a body means: the first one that has a mark in it, else the first without marks."""
    if len(offers) > 1 and isinstance(body, dict):
        given = {name for name, value in body.items() if value is not None}
        for offer in offers:
            if not offer.operation.marks.isdisjoint(given):
                return offer
    return next((offer for offer in offers if not offer.operation.marks), offers[0])


def foreign_fields(offers: Sequence[Offer], chosen: Offer) -> dict[str, tuple[str, Refused | None]]:
    """Return the fields that mean something to other offers of a path and nothing to the `chosen` one: the dialect of
    each, and its `Refused` mark where it has one.
    """
    known = _fields_of(chosen)
    return {
        name: (offer.dialect.name, next((mark for mark in field.metadata if isinstance(mark, Refused)), None))
        for offer in reversed(offers)
        for name, field in _fields_of(offer).items()
        if name not in known and not any(isinstance(mark, NoMeaning) for mark in field.metadata)
    }


def _fields_of(offer: Offer) -> dict[str, FieldInfo]:
    return {} if offer.operation.body is None else offer.operation.body.model_fields


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What all endpoints of a server share."""

    models: ServedModels
    options: ServerOptions
    gate: Gate


class Endpoint:
    """One path as an ASGI app: one dialect's where `exact`, else all that have it. It always answers, unless the client
    has left.
    """

    def __init__(self, offers: Sequence[Offer], frame: Frame, *, exact: bool) -> None:
        self._offers = tuple(offers)
        self._default = choose(offers, None)
        self._foreign = {id(offer): foreign_fields(offers, offer) for offer in offers}
        self._frame = frame
        self._exact = exact
        self._route = offers[0].operation.path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope[RECORD_KEY]
        record.route = self._route
        with self._frame.gate.inside():
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope[RECORD_KEY]
        offer = self._default
        late: CenoteError = SlowBodyError("the body did not arrive in time")
        deadline = asyncio.timeout(self._frame.options.request_timeout or None)
        try:
            async with deadline:
                body = await self._read(scope, receive)
                offer = choose(self._offers, body)
                late = DeadlineError(_LATE)
                response = await self._answer(offer, body, scope, receive)
        except ClientGoneError:
            record.status = CLIENT_GONE_STATUS
            return
        except asyncio.CancelledError:
            if self._frame.gate.is_open:
                raise
            stopped = EngineClosedError("the server was stopped before this request was done")
            response = offer.dialect.refusal(failure_of(stopped), exact=self._exact)
        except Exception as error:
            failed = late if isinstance(error, TimeoutError) and deadline.expired() else error
            if _is_for_the_log(failed):
                logger.error("request %s failed", record.request_id, exc_info=failed)
            response = offer.dialect.refusal(failure_of(failed), exact=self._exact)
        await response(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> Any:
        if self._default.operation.body is None:
            return None
        self._frame.gate.check_open()
        return await read_json(Headers(scope=scope), receive, self._frame.options.max_body_bytes)

    async def _answer(self, offer: Offer, body: Any, scope: Scope, receive: Receive) -> Response:
        schema = offer.operation.body
        self._refuse_foreign(offer, body)
        call = Call(
            body=None if schema is None else _validated(schema, body),
            path=scope.get("path_params", {}),
            models=self._frame.models,
            options=self._frame.options,
            record=scope[RECORD_KEY],
            exact=self._exact,
        )
        work = offer.operation.handler(call)
        try:
            return await (work if schema is None else while_connected(receive, work))
        except InputError as error:
            raise reworded(error, offer.operation.words) from None

    def _refuse_foreign(self, offer: Offer, body: Any) -> None:
        """Raise `InputError` for a field of another API on the same path: it would be dropped in silence."""
        foreign = self._foreign[id(offer)]
        for name, value in body.items() if foreign and isinstance(body, dict) else ():
            if name not in foreign or value is None:
                continue
            dialect, refused = foreign[name]
            if refused is None or not refused.allows(value):
                raise InputError(
                    f"`{name}` is a field of the API {dialect}, and this request was read as one of the API "
                    f"{offer.dialect.name}: leave it out, or ask under /{dialect}",
                    param=name,
                )


def _is_for_the_log(error: Exception) -> bool:
    """Return whether whoever runs the server should look at `error`; the line of its request is there in any case."""
    if isinstance(error, EngineError):
        return not isinstance(error, EngineClosedError | DeadlineError)
    return not isinstance(error, CenoteError)


def _validated(schema: type[BaseModel], value: Any) -> BaseModel:
    if not isinstance(value, dict):
        raise InputError("the body must be a JSON object")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _as_input_error(error) from None


def _as_input_error(error: ValidationError) -> InputError:
    """Return what is wrong with the first wrong field, without the value that the client sent."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    name, *inner = errors[0]["loc"]
    if errors[0]["type"] == "missing" and not inner:
        return InputError(f"`{name}` is required", param=str(name))
    item = inner[0] if inner and isinstance(inner[0], int) else None
    place = (name,) if item is None else (name, item)
    # A value of several types has one error for each of them.
    reasons = [each["msg"].removeprefix("Input ") for each in errors if each["loc"][: len(place)] == place]
    written = f"{name}" if item is None else f"{name}[{item}]"
    return InputError(f"`{written}` {', or '.join(reasons)}", param=str(name), index=item)

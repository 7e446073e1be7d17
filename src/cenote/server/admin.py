"""Loading and unloading models while the server runs: `POST /admin/models`, `DELETE /admin/models/{name}`.

Off unless asked for, and never without keys: whoever may call it decides what the server computes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import typing
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.responses import Response

from cenote.config import EngineOptions
from cenote.engine import AsyncEngine
from cenote.errors import CheckpointError, InputError, OptionError
from cenote.server.answers import json_response
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.dialects.openai import error_body
from cenote.server.opening import Opener
from cenote.server.schemas import ErrorBody
from cenote.server.served import ServedModels

T = TypeVar("T")

logger = logging.getLogger(__name__)

_OF_THE_PROCESS = {"threads"}
"""Options that are not a model's own."""


def _options_schema() -> type[BaseModel]:
    """Return the schema of `LoadRequest.options`: the fields of `EngineOptions`, none of them needed."""
    hints = typing.get_type_hints(EngineOptions)
    fields: dict[str, Any] = {name: (hint | None, None) for name, hint in hints.items() if name not in _OF_THE_PROCESS}
    return create_model("ModelOptions", __config__=ConfigDict(extra="forbid", strict=True), **fields)


_OPTIONS = _options_schema()


class LoadRequest(BaseModel):
    """What to load, and the name that clients will ask for."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(min_length=1, max_length=1000)]
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    options: dict[str, Any] | None = None


class LoadedModel(BaseModel):
    """A model that is served now."""

    id: str
    object: Literal["model"] = "model"
    tasks: list[str]
    dimensions: int | None
    max_model_len: int


class UnloadedModel(BaseModel):
    """A model that is not served any more."""

    id: str
    object: Literal["model"] = "model"
    deleted: Literal[True] = True


def admin_dialect(opener: Opener) -> Dialect:
    """Return the routes under `/admin`; models are loaded by `opener`, one at a time."""
    admin = _Admin(opener)
    return Dialect(
        name="admin",
        operations=(
            Operation(
                method="POST",
                path="/models",
                handler=admin.load,
                summary="Load a model and serve it",
                body=LoadRequest,
                answer=LoadedModel,
                is_own=True,
            ),
            Operation(
                method="DELETE",
                path="/models/{name:path}",
                handler=admin.unload,
                summary="Stop serving a model and free its memory",
                answer=UnloadedModel,
                is_own=True,
            ),
        ),
        error_body=error_body,
        failure_body=ErrorBody,
    )


class _Admin:
    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._one_at_a_time = asyncio.Lock()
        self._loading: dict[str, asyncio.Task[AsyncEngine]] = {}

    async def load(self, call: Call) -> Response:
        """Load a model beside the others, which go on. A client that leaves meanwhile does not stop it."""
        body: LoadRequest = call.body
        name = body.name
        if name in call.models.names or name in self._loading:
            raise InputError(f"a model of the name {name!r} is served or being loaded already", param="name")
        self._loading[name] = task = asyncio.create_task(self._load(name, body, call.models))
        task.add_done_callback(lambda done: self._note(name, done))
        info = (await asyncio.shield(task)).info
        loaded = LoadedModel(id=name, tasks=list(info.tasks), dimensions=info.dimensions, max_model_len=info.max_length)
        return json_response(loaded.model_dump())

    async def unload(self, call: Call) -> Response:
        """Stop serving a model: what waits for it fails at once, what is on its way is not waited for."""
        name = call.path["name"]
        engine = call.models.remove(name)
        await _in_own_thread(lambda: self._opener.close(engine))
        logger.info("%s: unloaded", name)
        return json_response(UnloadedModel(id=name).model_dump())

    async def _load(self, name: str, body: LoadRequest, models: ServedModels) -> AsyncEngine:
        options = self._options(body.options or {})
        async with self._one_at_a_time:
            try:
                engine = await _in_own_thread(lambda: self._opener.open(name, body.model, options))
            except (CheckpointError, OptionError) as error:
                raise InputError(str(error), param="model") from error
        models.add(name, engine)
        return engine

    def _options(self, changes: dict[str, Any]) -> EngineOptions:
        try:
            _OPTIONS.model_validate(changes)
            return dataclasses.replace(self._opener.options, **changes)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InputError(f"`options.{first['loc'][0]}`: {first['msg']}", param="options") from None
        except OptionError as error:
            raise InputError(str(error), param="options") from None

    def _note(self, name: str, done: asyncio.Task[AsyncEngine]) -> None:
        del self._loading[name]
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.warning("%s: not loaded", name, exc_info=error)


async def _in_own_thread(function: Callable[[], T]) -> T:
    """Run `function` in a thread that the end of the process does not wait for, as it does for those of a pool."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - handed to who waits
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="cenote-admin", daemon=True).start()
    return await asyncio.wrap_future(future)

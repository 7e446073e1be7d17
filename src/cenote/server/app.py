"""`create_app`: the ASGI application around loaded engines."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from cenote.server.describe import describe
from cenote.server.dialect import Dialect
from cenote.server.dialects import DEFAULT_DIALECT, DIALECTS
from cenote.server.endpoint import Endpoint
from cenote.server.failures import failure_of, failure_of_http
from cenote.server.metrics import Metrics
from cenote.server.observe import Observe
from cenote.server.operations import operation_routes
from cenote.server.served import ServedModels


def create_app(engines: Mapping[str, AsyncEngine], options: ServerOptions) -> Starlette:
    """Return the application that serves `engines` by their names. Whoever made the engines closes them.

    Every dialect answers on the bare paths and, in its exact form, under its own prefix.
    """
    models = ServedModels(engines)
    metrics = Metrics()
    routes: list[BaseRoute] = []
    for dialect in DIALECTS:
        own = _routes(dialect, models, options)
        routes += [*own, Mount(f"/{dialect.name}", routes=own)]
    routes += operation_routes(models, metrics, describe(DIALECTS))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Observe, metrics=metrics)],
        exception_handlers={HTTPException: _answer_http, Exception: _answer_unexpected},
    )
    app.router.redirect_slashes = False
    return app


def _routes(dialect: Dialect, models: ServedModels, options: ServerOptions) -> list[Route]:
    return [
        Route(operation.path, Endpoint(dialect, operation, models, options), methods=[operation.method])
        for operation in dialect.operations
    ]


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    return _dialect_of(path).failure(failure_of_http(error, request.method, path[:200]))


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return _dialect_of(request.url.path).failure(failure_of(error))


def _dialect_of(path: str) -> Dialect:
    prefix = path.split("/", 2)[1] if path.count("/") > 1 else ""
    return next((dialect for dialect in DIALECTS if dialect.name == prefix), DEFAULT_DIALECT)

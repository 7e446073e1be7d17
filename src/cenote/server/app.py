"""`create_app`: the ASGI application around loaded engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from cenote.server.admin import admin_dialect
from cenote.server.describe import describe
from cenote.server.dialects import DEFAULT_DIALECT, DIALECTS
from cenote.server.endpoint import Endpoint, Frame
from cenote.server.failures import failure_of, failure_of_http
from cenote.server.gate import Gate
from cenote.server.keys import Keys, read_keys
from cenote.server.metrics import Metrics
from cenote.server.observe import METRICS, PROBES, Observe
from cenote.server.opening import Opener
from cenote.server.operations import operation_routes
from cenote.server.paths import Paths, bare_paths, own_paths
from cenote.server.record import HEADERS
from cenote.server.refusals import Refusals
from cenote.server.served import ServedModels
from cenote.server.tracing import Tracing

_REFUSE = Refusals(DIALECTS, DEFAULT_DIALECT)


def create_app(
    engines: Mapping[str, AsyncEngine],
    options: ServerOptions,
    gate: Gate | None = None,
    tracing: Tracing | None = None,
    opener: Opener | None = None,
) -> Starlette:
    """Return the application that serves `engines` by their names. Whoever made the engines closes them.

    Once `gate` is closed, new work is refused. With `tracing` each request makes a span. With an `opener` models may be
    loaded and unloaded, where the options say so.

    Every dialect answers under its own prefix in its exact form; on the bare paths all of them answer, and where they
    share one the body decides.
    """
    frame = Frame(models=ServedModels(engines), options=options, gate=gate or Gate())
    metrics = Metrics(frame.models)
    routes: list[BaseRoute] = []
    routes += _routes(bare_paths(DIALECTS), frame, exact=False)
    admin = (admin_dialect(opener),) if options.admin and opener is not None else ()
    for dialect in (*DIALECTS, *admin):
        own = own_paths(dialect)
        root = {(method, f"/{dialect.name}"): offers for (method, path), offers in own.items() if path == "/"}
        routes += _routes(root, frame, exact=True)
        routes.append(Mount(f"/{dialect.name}", routes=_routes(own, frame, exact=True)))
    routes += operation_routes(frame, metrics, describe((*DIALECTS, *admin)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Observe, metrics=metrics, gate=frame.gate, tracing=tracing), *_guards(options)],
        exception_handlers={HTTPException: _answer_http, Exception: _answer_unexpected},
    )
    app.router.redirect_slashes = False
    return app


def _routes(paths: Paths, frame: Frame, *, exact: bool) -> list[Route]:
    return [
        Route(path, Endpoint(offers, frame, exact=exact), methods=[method]) for (method, path), offers in paths.items()
    ]


def _guards(options: ServerOptions) -> Iterator[Middleware]:
    """Give what stands before the routes: first for browsers, which ask without a key what they may send, then keys."""
    if options.cors_origin:
        yield Middleware(
            CORSMiddleware,
            allow_origins=options.cors_origin,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[*HEADERS, "retry-after"],
        )
    keys = read_keys(options)
    if keys:
        yield Middleware(Keys, keys=keys, free=_free_paths(options), refuse=_REFUSE)


def _free_paths(options: ServerOptions) -> frozenset[str]:
    """Return what needs no key: the probes, also under a prefix, and the metrics where the operator says so."""
    prefixed = (f"/{dialect.name}{path}" for dialect in DIALECTS for path in PROBES)
    return frozenset((*PROBES, *prefixed, *((METRICS,) if options.metrics_without_key else ())))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    return _REFUSE(path, failure_of_http(error, request.method, path[:200]))


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return _REFUSE(request.url.path, failure_of(error))

"""The routes that are for whoever runs the server: health, readiness, metrics, the description of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cenote.server.answers import to_json
from cenote.server.docs_page import CONTENT_SECURITY_POLICY, docs_page
from cenote.server.endpoint import Frame
from cenote.server.metrics import Metrics
from cenote.server.observe import METRICS, RECORD_KEY


def operation_routes(frame: Frame, metrics: Metrics, description: Mapping[str, Any]) -> list[Route]:
    """Return the routes of `PROBES`, `/metrics`, `/openapi.json` and `/docs`."""
    described, page = to_json(description), docs_page(description)

    async def health(request: Request) -> Response:
        _note(request)
        return _alive(frame) or _state("ok")

    async def ready(request: Request) -> Response:
        _note(request)
        return _alive(frame) or (_state("ready") if frame.gate.is_open else _state("stopping", 503))

    async def exposition(request: Request) -> Response:
        _note(request)
        return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def openapi(request: Request) -> Response:
        _note(request)
        return Response(described, media_type="application/json")

    async def docs(request: Request) -> Response:
        _note(request)
        headers = {"content-security-policy": CONTENT_SECURITY_POLICY}
        return Response(page, headers=headers, media_type="text/html")

    return [
        Route("/health", health),
        Route("/ping", health),
        Route("/ready", ready),
        Route(METRICS, exposition),
        Route("/openapi.json", openapi),
        Route("/docs", docs),
    ]


def _alive(frame: Frame) -> Response | None:
    """Return the answer of a server that cannot compute any more, `None` while it can."""
    unhealthy = frame.models.unhealthy()
    return _state("unavailable", 503, models=unhealthy) if unhealthy else None


def _state(status: str, code: int = 200, **more: Any) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(to_json({"status": status, **more}), code, headers=headers, media_type="application/json")


def _note(request: Request) -> None:
    request.scope[RECORD_KEY].route = request.scope["path"]

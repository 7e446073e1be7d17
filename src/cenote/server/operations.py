"""The routes that are for whoever runs the server: health, metrics, the description of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cenote.server.answers import to_json
from cenote.server.metrics import Metrics
from cenote.server.observe import RECORD_KEY
from cenote.server.served import ServedModels


def operation_routes(models: ServedModels, metrics: Metrics, description: Mapping[str, Any]) -> list[Route]:
    """Return the routes `/health`, `/metrics` and `/openapi.json`."""
    described = to_json(description)

    async def health(request: Request) -> Response:
        _note(request)
        unhealthy = models.unhealthy()
        if unhealthy:
            body = to_json({"status": "unavailable", "models": unhealthy})
            return Response(body, 503, media_type="application/json")
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def exposition(request: Request) -> Response:
        _note(request)
        return Response(metrics.exposition(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def openapi(request: Request) -> Response:
        _note(request)
        return Response(described, media_type="application/json")

    return [Route("/health", health), Route("/metrics", exposition), Route("/openapi.json", openapi)]


def _note(request: Request) -> None:
    request.scope[RECORD_KEY].route = request.scope["path"]

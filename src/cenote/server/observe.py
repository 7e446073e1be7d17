"""The outermost middleware: gives a request its id and its record; counts it and logs it when it is over."""

from __future__ import annotations

import logging
import random
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cenote.server.gate import Gate
from cenote.server.logs import FIELDS
from cenote.server.metrics import Metrics
from cenote.server.record import Record
from cenote.server.tracing import Tracing

RECORD_KEY = "cenote.record"
"""Where the ASGI scope keeps the `Record`."""
PROBES = ("/health", "/ready", "/ping")
"""What an orchestrator asks every few seconds: cheap, and without a key."""
METRICS = "/metrics"

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_QUIET_ROUTES = frozenset((*PROBES, METRICS))
_access = logging.getLogger("cenote.access")
_ids = random.Random()  # noqa: S311 - names, not secrets
"""The system's generator gives up Python's lock, and under load the event loop waits long to get it back."""


class Observe:
    """Pure ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics, gate: Gate, tracing: Tracing | None) -> None:
        self._app = app
        self._metrics = metrics
        self._gate = gate
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        record = Record(request_id=_request_id(scope))
        scope[RECORD_KEY] = record

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *record.headers()]
                if not self._gate.is_open:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            self._end(scope, record, time.perf_counter() - start)

    def _end(self, scope: Scope, record: Record, seconds: float) -> None:
        is_quiet = record.route in _QUIET_ROUTES
        self._metrics.observe(record, seconds)
        _log(record, scope["method"], seconds, logging.DEBUG if is_quiet else logging.INFO)
        if self._tracing is not None and not is_quiet:
            self._tracing.add(record, scope["method"], scope["headers"], seconds)


def _request_id(scope: Scope) -> str:
    """Return the client's own id where it is short and printable, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"{_ids.getrandbits(128):032x}"


def _log(record: Record, method: str, seconds: float, level: int) -> None:
    if _access.isEnabledFor(level):
        # Not `_access.log`, which walks the stack for the caller's line: a third of the cost of the whole line.
        line = logging.LogRecord(_access.name, level, __file__, 0, "request", None, None)
        setattr(line, FIELDS, {"method": method, **record.fields(), "seconds": round(seconds, 6)})
        _access.handle(line)

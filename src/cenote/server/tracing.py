"""Traces: one OpenTelemetry span for each request, where the environment asks for them.

The variables are OpenTelemetry's own (`OTEL_EXPORTER_OTLP_ENDPOINT` and its kin). Its packages are imported only then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cenote import __version__
from cenote.errors import OptionError
from cenote.server.record import Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

logger = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PARENT = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


class Tracing:
    """Makes a span of a finished request: nothing is done before, and nothing for one that is not sampled."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("cenote", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def add(self, record: Record, method: str, headers: Iterable[tuple[bytes, bytes]], seconds: float) -> None:
        """Note a request that ended now and took `seconds`, under the span that its `traceparent` names, if any."""
        from opentelemetry.trace import SpanKind, StatusCode

        end = time.time_ns()
        span = self._tracer.start_span(
            f"{method} {record.route}".strip(),
            context=self._parent(headers),
            kind=SpanKind.SERVER,
            start_time=end - int(seconds * 1e9),
            attributes={
                "http.request.method": method,
                "http.response.status_code": record.status,
                "http.route": record.route,
                **{f"cenote.{name}": value for name, value in record.fields().items() if name not in _HTTP_FIELDS},
            },
        )
        if record.status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _parent(self, headers: Iterable[tuple[bytes, bytes]]) -> Context | None:
        carrier = {_PARENT[name]: value.decode("latin-1") for name, value in headers if name in _PARENT}
        return self._propagator.extract(carrier) if carrier else None


_HTTP_FIELDS = frozenset(("route", "status"))
"""Those that have names of OpenTelemetry's own."""


def open_tracing(environ: Mapping[str, str]) -> Tracing | None:
    """Return what makes spans, or `None` where `environ`, which is the process' own, does not ask for them.

    Raises `OptionError` for an exporter or a protocol other than OTLP over HTTP. Where the packages are missing, it
    warns: the variables may be set for every program of a machine.
    """
    if not _is_wanted(environ):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        logger.warning("no traces, though OTEL_ variables ask for them: %s; pip install 'cenote[otel]'", error)
        return None
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": "cenote"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def _is_wanted(environ: Mapping[str, str]) -> bool:
    exporter = environ.get("OTEL_TRACES_EXPORTER", "")
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    if exporter not in ("", "otlp"):
        raise OptionError(f"OTEL_TRACES_EXPORTER {exporter!r} is not one of otlp, none")
    if not exporter and not any(environ.get(name) for name in _ENDPOINTS):
        return False
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise OptionError(
            f"traces are sent with http/protobuf only, and OTEL_EXPORTER_OTLP_PROTOCOL asks for {protocol!r}"
        )
    return True

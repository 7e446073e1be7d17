"""One span for each request, under the caller's own, with OpenTelemetry's own packages on both ends."""

from __future__ import annotations

import http.server
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from running import RunningServer, run_server

from cenote.errors import OptionError
from cenote.server.record import Record
from cenote.server.tracing import Tracing, open_tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(server: RunningServer, exporter: InMemorySpanExporter) -> Iterator[RunningServer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with run_server(server.engines, tracing=Tracing(provider)) as running:
        yield running


def spans(traced: RunningServer, exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Return the spans so far: a span ends after its answer was sent, but before the next request is read."""
    traced.http.get("/health")
    return exporter.get_finished_spans()


def only(traced: RunningServer, exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = spans(traced, exporter)
    return span


def test_a_request_is_a_span(traced: RunningServer, exporter: InMemorySpanExporter) -> None:
    answer = traced.http.post("/v1/embeddings", json={"model": "tiny", "input": ["the cat", "a dog"]})
    span = only(traced, exporter)
    assert (span.name, span.kind, span.parent) == ("POST /v1/embeddings", SpanKind.SERVER, None)
    found = dict(span.attributes or {})
    waited, ran = found.pop("cenote.queue_seconds"), found.pop("cenote.inference_seconds")
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "cenote.request_id": answer.headers["x-request-id"],
        "cenote.model": "tiny",
        "cenote.texts": 2,
        "cenote.tokens": int(answer.headers["x-cenote-tokens"]),
        "cenote.truncated": 0,
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 < (waited + ran) * 1e9 < span.end_time - span.start_time
    assert span.status.status_code is StatusCode.UNSET


def test_the_caller_is_its_parent(traced: RunningServer, exporter: InMemorySpanExporter) -> None:
    traced.http.get("/v1/models", headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"})
    span = only(traced, exporter)
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state == {"a": "b"}


def test_a_caller_that_is_not_sampled_makes_no_span(traced: RunningServer, exporter: InMemorySpanExporter) -> None:
    traced.http.get("/v1/models", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert spans(traced, exporter) == ()


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", "00-\u00e9-\u00e9-01"])
def test_a_broken_parent_is_none(traced: RunningServer, exporter: InMemorySpanExporter, header: str) -> None:
    assert traced.http.get("/v1/models", headers={"traceparent": header.encode("latin-1")}).status_code == 200
    assert only(traced, exporter).parent is None


def test_clients_put_nothing_into_it(traced: RunningServer, exporter: InMemorySpanExporter) -> None:
    traced.http.get("/geheim?geheim=geheim")
    traced.http.post("/v1/embeddings", json={"model": "geheim", "input": "geheim"})
    for span in spans(traced, exporter):
        assert "geheim" not in span.to_json()


def test_probes_make_none(traced: RunningServer, exporter: InMemorySpanExporter) -> None:
    for path in ("/health", "/ready", "/ping", "/metrics"):
        traced.http.get(path)
    assert spans(traced, exporter) == ()


def test_a_failure_of_the_server_is_an_error(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for status in (499, 503):
        Tracing(provider).add(Record(request_id="a", route="/v1/embed", status=status), "POST", [], 0.5)
    gone, failed = exporter.get_finished_spans()
    assert (gone.status.status_code, failed.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert failed.end_time is not None
    assert failed.start_time is not None
    assert failed.end_time - failed.start_time == 500_000_000


class TestEnvironment:
    @pytest.mark.parametrize(
        ("environ", "is_wanted"),
        [
            ({}, False),
            ({ENDPOINT: ""}, False),
            ({ENDPOINT: "http://127.0.0.1:1"}, True),
            ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, True),
            ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
            ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://127.0.0.1:1"}, False),
            ({"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://127.0.0.1:1"}, False),
        ],
    )
    def test_says_whether(self, environ: dict[str, str], is_wanted: bool) -> None:
        tracing = open_tracing(environ)
        assert (tracing is not None) == is_wanted
        if tracing is not None:
            tracing.close()

    @pytest.mark.parametrize(
        "environ",
        [{"OTEL_TRACES_EXPORTER": "zipkin"}, {ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}],
    )
    def test_what_is_not_spoken_is_refused(self, environ: dict[str, str]) -> None:
        with pytest.raises(OptionError, match="OTEL_"):
            open_tracing(environ)

    def test_spans_arrive_at_a_collector(self, server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
        with collector() as (url, received):
            environ = {ENDPOINT: url}
            monkeypatch.setenv(ENDPOINT, url)  # the exporter reads the process' own environment
            tracing = open_tracing(environ)
            with run_server(server.engines, tracing=tracing) as own:
                own.http.post("/v1/embeddings", json={"model": "tiny", "input": "the cat"})
            assert tracing is not None
            tracing.close()
        (batch,) = received[0].resource_spans
        assert [span.name for span in batch.scope_spans[0].spans] == ["POST /v1/embeddings"]
        names = {each.key: each.value.string_value for each in batch.resource.attributes}
        assert names["service.name"] == "cenote"

    def test_without_the_extra_it_warns_and_serves(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
        assert open_tracing({ENDPOINT: "http://127.0.0.1:1"}) is None
        assert "cenote[otel]" in caplog.text

    def test_nothing_is_imported_unless_asked_for(self) -> None:
        program = (
            "import os, sys\n"
            "from cenote.server import app, tracing\n"
            "assert tracing.open_tracing({}) is None\n"
            "print([name for name in sys.modules if name.startswith('opentelemetry.')])\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector of OTLP over HTTP, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            logging.getLogger(__name__).debug("collected")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", received
        finally:
            listening.shutdown()
            thread.join()

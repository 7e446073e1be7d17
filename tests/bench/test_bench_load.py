"""The load generator against a real HTTP server on the loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cenote.bench.load import Load, LoadResult, run_load

DELAY_SECONDS = 0.02


class _Handler(BaseHTTPRequestHandler):
    """Answers 200 after a delay, but 503 to the body `busy` and nothing at all to `hang up`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if body == b"hang up":
            self.close_connection = True
            return
        self.send_response(503 if body == b"busy" else 200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"do")
        self.wfile.flush()
        time.sleep(DELAY_SECONDS)
        self.wfile.write(b"ne")

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def _run(port: int, bodies: list[bytes], num_clients: int = 2) -> LoadResult:
    return run_load(
        Load(
            host="127.0.0.1",
            port=port,
            path="/",
            bodies=bodies,
            num_clients=num_clients,
            seconds=0.5,
            warmup_seconds=0.1,
        )
    )


def test_clients_send_in_turn_and_a_latency_ends_with_the_body(port: int) -> None:
    result = _run(port, [b"a", b"b", b"c"])
    assert result.num_failed == 0
    assert set(result.answered) == {0, 1, 2}
    assert len(result.answered) == len(result.latencies) <= 2 * 0.5 / DELAY_SECONDS + 2
    assert min(result.latencies) >= DELAY_SECONDS
    assert result.percentile(0) <= result.percentile(50) <= result.percentile(99) <= max(result.latencies)
    assert result.requests_per_second == len(result.answered) / 0.5
    assert result.cpu_seconds > 0


@pytest.mark.parametrize(("body", "reason"), [(b"busy", "status 503: done"), (b"hang up", "IncompleteReadError")])
def test_failures_are_counted_and_do_not_stop_the_others(port: int, body: bytes, reason: str) -> None:
    result = _run(port, [b"good", body])
    assert set(result.answered) == {0}
    assert result.num_failed > 0
    assert result.first_failure is not None
    assert reason in result.first_failure


def test_a_server_that_is_not_there_is_a_failure_not_an_exception() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        closed_port = server.server_port
    result = _run(closed_port, [b"a"])
    assert result.answered == []
    assert result.num_failed > 0
    assert result.percentile(50) != result.percentile(50)

"""The load generator against a real HTTP server on the loopback."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from cenote.bench.connection import Connection, Target, parse_target
from cenote.bench.load import Load, LoadResult, arrivals, run_load
from cenote.errors import OptionError

DELAY_SECONDS = 0.02


class _Handler(BaseHTTPRequestHandler):
    """Answers 200 after a delay, but 503 to the body `busy` and nothing at all to `hang up`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if body == b"hang up":
            self.close_connection = True
        elif body == b"chunked":
            self._answer_in_chunks()
        elif body == b"who":
            self._answer(str(self.headers["Authorization"]).encode())
        elif body.startswith(b"usage "):
            self._answer(b'{"usage": {"prompt_tokens": 1, "total_tokens": %s}}' % body.split()[1])
        else:
            self._answer_late(body)

    def _answer_late(self, body: bytes) -> None:
        if body == b"slow":
            time.sleep(0.15)
        self.send_response(503 if body == b"busy" else 200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"do")
        self.wfile.flush()
        time.sleep(DELAY_SECONDS)
        self.wfile.write(b"ne")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_in_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\nabc\r\n2;why\r\nde\r\n0\r\nTrailer: x\r\n\r\n")

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


def _load(port: int, bodies: list[bytes], rate: float | None = None) -> LoadResult:
    times = {"seconds": 0.5, "warmup_seconds": 0.1}
    return run_load(Load(host="127.0.0.1", port=port, path="/", bodies=bodies, rate=rate, **times))


def test_tokens_are_those_that_the_server_says(port: int) -> None:
    result = _load(port, [b"usage 3", b"usage 5"])
    assert result.num_tokens == sum(3 if index == 0 else 5 for index in result.answered)
    assert _load(port, [b"usage 3", b"silent"]).num_tokens is None


def test_arrivals_follow_the_rate_and_the_seed() -> None:
    times = arrivals(200.0, 20.0, seed=3)
    assert times == arrivals(200.0, 20.0, seed=3) != arrivals(200.0, 20.0, seed=4)
    assert len(times) == pytest.approx(4000, rel=0.1)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1), "gaps are exponential"
    assert 0 < times[0] < times[-1] < 20.0


def test_an_open_loop_sends_what_is_due_however_slow_the_answers_are(port: int) -> None:
    result = _load(port, [b"slow"], rate=60.0)
    due = [at for at in arrivals(60.0, 0.6, seed=0) if at >= 0.1]
    assert len(result.answered) == len(due), "nothing is left out, neither for slowness nor at the end"
    assert result.max_in_flight > 2
    assert result.seconds >= 0.5
    assert result.cpu_seconds > 0


def test_an_open_loop_counts_from_the_time_at_which_a_request_was_due(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cenote.bench.load.MAX_CONNECTIONS", 1)
    result = _load(port, [b"slow"], rate=40.0)
    assert result.max_in_flight == 1
    assert max(result.latencies) > 5 * 0.15, "the last ones waited for the one connection"
    assert result.seconds > 1.0, "and the duration is until their answers"


def test_failures_of_an_open_loop_are_counted(port: int) -> None:
    result = _load(port, [b"busy"], rate=50.0)
    assert result.answered == []
    assert result.num_failed > 0
    assert result.first_failure == "status 503: done"


def test_the_key_is_sent_and_chunks_are_read(port: int) -> None:
    target = parse_target(f"http://127.0.0.1:{port}/some/route?a=b", "secret")
    assert (target.path, target.tls) == ("/some/route?a=b", None)
    assert _posts(target, [b"who", b"chunked", b"who"]) == [b"Bearer secret", b"abcde", b"Bearer secret"]


def test_https_with_a_certificate_that_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}/"
        try:
            with pytest.raises(ssl.SSLError):
                _posts(parse_target(url), [b"who"])
            authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            assert _posts(parse_target(url), [b"chunked"]) == [b"abcde"]
        finally:
            server.shutdown()
            thread.join()


def _posts(target: Target, bodies: list[bytes]) -> list[bytes]:
    async def post() -> list[bytes]:
        connection = Connection(target)
        try:
            return [(await connection.post(body)).body for body in bodies]
        finally:
            connection.close()
            await asyncio.sleep(0.05)  # for the socket to be closed

    return asyncio.run(post())


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/", "http://", "http://host:port/", "http://host/a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        parse_target(url)


def test_a_server_that_is_not_there_is_a_failure_not_an_exception() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        closed_port = server.server_port
    result = _run(closed_port, [b"a"])
    assert result.answered == []
    assert result.num_failed > 0
    assert result.percentile(50) != result.percentile(50)

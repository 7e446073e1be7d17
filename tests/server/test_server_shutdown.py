"""Stopping in good order: what runs is finished, what comes is refused, on open connections and on new ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import RunningServer, run_server

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine

BODY = {"input": "the cat"}
PATIENCE_SECONDS = 20


class Held:
    """Stands around the model's own backbone and lets no step through until it is told to."""

    def __init__(self, backbone: Any) -> None:
        self._backbone = backbone
        self.has_begun = threading.Event()
        self.may_run = threading.Event()

    def __call__(self, batch: Any) -> Any:
        self.has_begun.set()
        assert self.may_run.wait(PATIENCE_SECONDS)
        return self._backbone(batch)


@pytest.fixture
def engine(folders: dict[str, Path]) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(folders["tiny"], threads=1)
    yield engine
    engine.close()


@contextmanager
def busy(engine: AsyncEngine, grace: int) -> Iterator[tuple[RunningServer, Held, Future[httpx.Response]]]:
    """A server with a request in the middle of its step, and its answer to come."""
    model = engine._core.lane.runner.model
    held = Held(model.backbone)
    object.__setattr__(model, "backbone", held)
    options = ServerOptions(port=0, shutdown_timeout=grace)
    with run_server({"tiny": engine}, options) as server, ThreadPoolExecutor(1) as threads:
        running = threads.submit(httpx.post, f"{server.url}/v1/embeddings", json=BODY, timeout=PATIENCE_SECONDS)
        try:
            assert held.has_begun.wait(PATIENCE_SECONDS)
            yield server, held, running
        finally:
            held.may_run.set()


def test_ready_says_whether_requests_are_taken(server: RunningServer) -> None:
    answer = server.http.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
    assert answer.headers["cache-control"] == "no-store"
    assert server.http.get("/ping").json() == server.http.get("/health").json() == {"status": "ok"}


def test_what_runs_is_finished_and_what_comes_is_refused(engine: AsyncEngine) -> None:
    with busy(engine, grace=PATIENCE_SECONDS) as (server, held, running):
        server.http.get("/health")  # an open connection
        server.server.stop()
        old, new = server.http.post("/v1/embeddings", json=BODY), httpx.post(f"{server.url}/v2/embed", json=BODY)
        for answer in (old, new):
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["connection"] == "close"
            assert "shutting down" in answer.text
        ready = httpx.get(f"{server.url}/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "stopping"})
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert not running.done()
        held.may_run.set()
        assert running.result(PATIENCE_SECONDS).status_code == 200
        until_closed(server)


def test_what_is_late_is_told_so_at_the_end_of_the_grace_period(engine: AsyncEngine) -> None:
    with busy(engine, grace=1) as (server, _, running):
        start = time.monotonic()
        server.server.stop()
        answer = running.result(PATIENCE_SECONDS)
        assert 0.9 < time.monotonic() - start < 5
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        until_closed(server)


def test_the_second_signal_does_not_wait(engine: AsyncEngine) -> None:
    with busy(engine, grace=PATIENCE_SECONDS) as (server, _, running):
        start = time.monotonic()
        server.server.stop()
        server.server.stop()
        assert running.result(PATIENCE_SECONDS).status_code == 503
        assert time.monotonic() - start < 5


def until_closed(server: RunningServer) -> None:
    for _ in range(50):
        try:
            httpx.get(f"{server.url}/health")
        except httpx.TransportError:
            return
        time.sleep(0.1)
    raise AssertionError("the server still takes connections")

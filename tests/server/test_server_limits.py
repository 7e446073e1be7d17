"""What a request may take of the server: room in the queue, time, and nothing of what others asked."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from running import RunningServer, run_server

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from cenote.server.dialects import DIALECTS
from waiting import until

PATIENCE_SECONDS = 60
TEXT = "the cat"
TEXT_TOKENS = 4
ROUTES = {
    "openai": ("/v1/embeddings", {"input": [TEXT]}),
    "cohere": ("/v2/embed", {"model": "tiny", "texts": [TEXT], "input_type": "classification", "embedding_types": []}),
    "jina": ("/v1/embeddings", {"model": "tiny", "input": [TEXT]}),
    "voyage": ("/v1/embeddings", {"model": "tiny", "input": [TEXT]}),
    "encode": ("/v1/encode", {"input": [TEXT]}),
    "vllm": ("/pooling", {"model": "tiny", "input": [TEXT]}),
    "tei": ("/embed", {"inputs": [TEXT]}),
}
FAILED = {"tei": 424}
"""The statuses of accepted work that failed, where a dialect has its own."""
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Held:
    """Stands around the model's own backbone: steps wait, or raise, as they are told."""

    def __init__(self, backbone: Any) -> None:
        self._backbone = backbone
        self.error: BaseException | None = None
        self.num_steps = 0
        self.has_begun = threading.Event()
        self.may_run = threading.Event()

    def __call__(self, batch: Any) -> Any:
        self.num_steps += 1
        self.has_begun.set()
        assert self.may_run.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        return self._backbone(batch)


@dataclass(frozen=True)
class Scene:
    """A server whose model is held."""

    server: RunningServer
    engine: AsyncEngine
    held: Held

    def post(self, path: str = "/v1/embeddings", body: object = None) -> httpx.Response:
        return self.server.http.post(path, json=body or {"input": TEXT})

    def occupy(self, threads: ThreadPoolExecutor) -> Future[httpx.Response]:
        """Send a request and return once its step has begun."""
        running = threads.submit(self.post)
        assert self.held.has_begun.wait(PATIENCE_SECONDS)
        return running


@contextmanager
def held_server(folder: Path, options: ServerOptions | None = None, **engine_options: Any) -> Iterator[Scene]:
    engine = AsyncEngine(folder, threads=1, **engine_options)
    model = engine._core.lane.runner.model
    held = Held(model.backbone)
    object.__setattr__(model, "backbone", held)
    try:
        with run_server({"tiny": engine}, options) as server:
            yield Scene(server, engine, held)
            held.may_run.set()
    finally:
        held.may_run.set()
        engine.close()


def test_every_dialect_is_tried() -> None:
    assert set(ROUTES) == {dialect.name for dialect in DIALECTS}


def test_a_full_queue_says_when_to_come_back(folders: dict[str, Path]) -> None:
    """Each dialect in its own words, and its place in the queue is free again once another's is."""
    with held_server(folders["tiny"], max_queue_tokens=4 * TEXT_TOKENS) as scene, ThreadPoolExecutor(2) as threads:
        running = scene.occupy(threads)
        waiting = threads.submit(scene.post, body={"input": [f"{TEXT}", "the fish", "the dog", "the water"]})
        until(lambda: scene.engine.load.queued_tokens > 3 * TEXT_TOKENS)
        for name, (path, body) in ROUTES.items():
            answer = scene.post(f"/{name}{path}", body)
            assert answer.status_code == 429, f"{name}: {answer.text}"
            assert 1 <= int(answer.headers["retry-after"]) <= 600
            assert "busy" in answer.text
        assert scene.server.metric("cenote_queued_requests") == 1
        scene.held.may_run.set()
        assert [running.result().status_code, waiting.result().status_code] == [200, 200]
        assert scene.post().status_code == 200
        assert scene.server.metric("cenote_queued_tokens") == scene.server.metric("cenote_unanswered_requests") == 0


def test_a_request_that_never_fits_is_refused_for_good(folders: dict[str, Path]) -> None:
    with held_server(folders["tiny"], max_queue_tokens=10) as scene:
        scene.held.may_run.set()
        for name, (path, body) in ROUTES.items():
            key = "input" if "input" in body else "texts" if "texts" in body else "inputs"
            answer = scene.post(f"/{name}{path}", body | {key: ["the cat", "a dog", "the water"]})
            assert 400 <= answer.status_code < 500, f"{name}: {answer.text}"
            assert answer.status_code != 429
            assert "at most 10 may wait" in answer.text
            assert "max_queue_tokens" in answer.text
        assert scene.post(body={"input": ["the cat", "a dog"]}).status_code == 200


def test_a_request_that_is_late_leaves_the_queue(folders: dict[str, Path]) -> None:
    """The steps that run are counted: none is for the one that gave up."""
    options = ServerOptions(port=0, shutdown_timeout=5, request_timeout=1)
    with held_server(folders["tiny"], options) as scene, ThreadPoolExecutor(2) as threads:
        running = scene.occupy(threads)
        for name, (path, body) in ROUTES.items():
            started = time.monotonic()
            answer = scene.post(f"/{name}{path}", body)
            assert answer.status_code == FAILED.get(name, 504), f"{name}: {answer.text}"
            assert "request_timeout" in answer.text
            assert 1 <= time.monotonic() - started < 10
        assert running.result().status_code == 504
        assert scene.engine.load.queued_requests == scene.engine.load.unanswered_requests == 0
        scene.held.may_run.set()
        assert scene.post().status_code == 200
        assert scene.held.num_steps == 2


def test_a_body_that_does_not_come_is_given_up(folders: dict[str, Path]) -> None:
    options = ServerOptions(port=0, shutdown_timeout=5, request_timeout=1)
    with held_server(folders["tiny"], options) as scene:
        scene.held.may_run.set()
        host, port = scene.server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as stalled:
            stalled.sendall(HEAD % 100 + b'{"input": "th')
            assert scene.post().status_code == 200
            received = b"".join(iter(lambda: stalled.recv(65536), b""))
        assert received.startswith(b"HTTP/1.1 408 ")
        assert b"slow_body" in received
        assert scene.post().status_code == 200


def test_a_half_closed_connection_gets_no_answer_and_costs_nothing(folders: dict[str, Path]) -> None:
    """A client that shuts its side has left, as far as HTTP servers can tell: its work goes, others are served."""
    with held_server(folders["tiny"]) as scene, ThreadPoolExecutor(1) as threads:
        running = scene.occupy(threads)
        host, port = scene.server.url.removeprefix("http://").split(":")
        body = b'{"input": "the water"}'
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as half:
            half.sendall(HEAD % len(body) + body)
            until(lambda: scene.engine.load.queued_requests == 1)
            half.shutdown(socket.SHUT_WR)
            until(lambda: scene.engine.load.queued_requests == 0)
            assert half.recv(100) == b""
        scene.held.may_run.set()
        assert running.result().status_code == 200
        assert scene.held.num_steps == 1


def test_a_step_that_hangs_turns_health_red(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    with held_server(folders["tiny"], stall_seconds=1) as scene, ThreadPoolExecutor(1) as threads:
        running = scene.occupy(threads)
        assert scene.server.http.get("/health").status_code == 200
        time.sleep(1.1)
        health = scene.server.http.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "unavailable", "models": ["tiny"]})
        refused = scene.post()
        assert refused.status_code == 503
        assert "stall_seconds" in refused.text
        scene.held.may_run.set()
        assert running.result().status_code == 200
        assert scene.server.http.get("/health").status_code == 200
        assert scene.post().status_code == 200


def test_what_the_model_raised_stays_on_the_server(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    with held_server(folders["tiny"]) as scene:
        scene.held.error = RuntimeError("it failed on: a secret text")
        scene.held.may_run.set()
        with caplog.at_level(logging.ERROR):
            for name, (path, body) in ROUTES.items():
                answer = scene.post(f"/{name}{path}", body)
                assert answer.status_code == FAILED.get(name, 500)
                assert "secret" not in answer.text, name
                assert "x-request-id" in answer.text
                assert answer.headers["x-request-id"] in caplog.text
        assert "a secret text" in caplog.text


def test_a_loop_that_died_says_nothing_of_why(folders: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    with held_server(folders["tiny"]) as scene:
        scene.held.error = SystemExit("a secret text")
        scene.held.may_run.set()
        answers = [scene.post(), scene.post()]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "secret" not in answers[0].text + answers[1].text

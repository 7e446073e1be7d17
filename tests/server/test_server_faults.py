"""What a client sees when a step fails, the loop dies or it leaves: the others are served, nothing hangs."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import torch
from running import TIMEOUT_SECONDS, RunningServer, run_server

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from tolerances import assert_close
from waiting import until

MARKER_ID = 77
"""A token id whose sequences make the forward pass fail."""


class BrokenBackbone:
    """Stands around the model's own backbone: fails on `MARKER_ID`, waits while told to.

    A batch that holds the marker raises `error`; without one, the marked rows are not finite.
    """

    def __init__(self, backbone: Any) -> None:
        self.backbone = backbone
        self.error: BaseException | None = RuntimeError("injected")
        self.has_begun = threading.Event()
        self.may_run = threading.Event()
        self.may_run.set()
        self.num_steps = 0

    def __call__(self, batch: Any) -> Any:
        self.has_begun.set()
        assert self.may_run.wait(20)
        self.num_steps += 1
        marked_T = batch.input_ids_T == MARKER_ID
        if self.error is not None and marked_T.any():
            raise self.error
        return torch.where(marked_T[:, None], torch.nan, self.backbone(batch))


@pytest.fixture
def engine(folders: dict[str, Path]) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(folders["tiny"], threads=1)
    yield engine
    engine.close()


@pytest.fixture
def broken(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> BrokenBackbone:
    model = engine._core.lane.runner.model
    broken = BrokenBackbone(model.backbone)
    object.__setattr__(model, "backbone", broken)
    return broken


@pytest.fixture
def own_server(engine: AsyncEngine, broken: BrokenBackbone) -> Iterator[RunningServer]:
    with run_server({"tiny": engine}, ServerOptions(port=0, max_body_bytes=100_000)) as running:
        yield running
        broken.may_run.set()


def post(server: RunningServer, texts: object) -> httpx.Response:
    return server.http.post("/v1/embeddings", json={"input": texts})


def vectors(answer: httpx.Response) -> npt.NDArray[np.float64]:
    return np.asarray([item["embedding"] for item in answer.json()["data"]])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("injected"), "failed on this request"),
        (torch.OutOfMemoryError("injected"), "ran out of memory"),
        (None, "not finite"),
    ],
    ids=["exception", "memory", "not finite"],
)
def test_only_the_request_at_fault_fails(
    own_server: RunningServer,
    engine: AsyncEngine,
    broken: BrokenBackbone,
    error: Exception | None,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """BL-25: fifteen different neighbours in the same step, each of whom gets its own right answer."""
    broken.error = error
    texts = [[MARKER_ID if i == 3 else 5 + i, 6, 30 - i] for i in range(16)]
    references = [vectors(post(own_server, text)) for text in texts if MARKER_ID not in text]
    for _ in range(5):
        broken.may_run.clear()
        broken.has_begun.clear()
        with ThreadPoolExecutor(17) as threads:
            first = threads.submit(post, own_server, "the cat")
            assert broken.has_begun.wait(60)
            running = [threads.submit(post, own_server, text) for text in texts]
            until(lambda: engine.load.queued_requests == len(texts))
            broken.may_run.set()
            answers = [each.result() for each in running]
        assert first.result().status_code == 200
        assert [answer.status_code for answer in answers] == [500 if i == 3 else 200 for i in range(16)]
        good = [vectors(answer) for answer in answers if answer.status_code == 200]
        for answer, reference in zip(good, references, strict=True):
            assert_close(answer, reference)
        failed = answers[3].json()["error"]
        assert failed["type"] == "server_error"
        assert words in failed["message"]
        assert "injected" not in answers[3].text
        assert own_server.http.get("/health").status_code == 200
    assert engine.load.unanswered_requests == engine.load.queued_tokens == 0


def test_dead_loop_turns_health_red_and_fails_what_waits_at_once(
    own_server: RunningServer, broken: BrokenBackbone, caplog: pytest.LogCaptureFixture
) -> None:
    """BL-25, BL-37."""
    broken.error = SystemExit("injected")
    broken.may_run.clear()
    with ThreadPoolExecutor(2) as threads:
        fatal = threads.submit(post, own_server, [MARKER_ID])
        assert broken.has_begun.wait(10)
        waiting = threads.submit(post, own_server, "the cat")
        time.sleep(0.2)
        broken.may_run.set()
        start = time.monotonic()
        answers = [fatal.result(), waiting.result(), post(own_server, "the cat")]
    assert time.monotonic() - start < 2
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert {answer.json()["error"]["code"] for answer in answers} == {"unavailable"}
    health = own_server.http.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "unavailable", "models": ["tiny"]})


def test_closed_engine_is_unavailable(own_server: RunningServer, engine: AsyncEngine) -> None:
    engine.close()
    assert own_server.http.get("/health").status_code == 503
    assert post(own_server, "the cat").status_code == 503


def test_a_client_that_leaves_takes_its_work_with_it(
    own_server: RunningServer, broken: BrokenBackbone, caplog: pytest.LogCaptureFixture
) -> None:
    post(own_server, "the cat")
    steps = broken.num_steps
    broken.may_run.clear()
    broken.has_begun.clear()
    host, port = own_server.url.removeprefix("http://").split(":")
    leaving = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
    staying: list[Any] = []
    thread = threading.Thread(target=lambda: staying.append(post(own_server, "a dog")))
    thread.start()
    assert broken.has_begun.wait(10)
    body = b'{"input": ["water", "fish"]}'
    head = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    leaving.sendall(head % len(body) + body)
    time.sleep(0.3)
    leaving.close()
    gone = {"route": "/v1/embeddings", "status": "499"}
    until(lambda: own_server.metric("cenote_requests_total", **gone) == 1)
    broken.may_run.set()
    thread.join(20)
    assert staying[0].status_code == 200
    assert post(own_server, "the cat").status_code == 200
    assert broken.num_steps == steps + 2, "the work of the client that left was still done"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_client_that_leaves_in_the_middle_of_its_body(own_server: RunningServer) -> None:
    host, port = own_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as leaving:
        leaving.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    assert post(own_server, "the cat").status_code == 200


def test_a_body_over_the_limit_is_refused_and_the_next_is_served(own_server: RunningServer) -> None:
    assert post(own_server, "a" * 200_000).status_code == 413
    assert post(own_server, "the cat").status_code == 200


def test_the_only_model_needs_no_name(own_server: RunningServer) -> None:
    assert post(own_server, "the cat").json()["model"] == "tiny"


@pytest.mark.parametrize("size", [31, 32, 33, 50])
def test_texts_around_the_token_budget_are_never_stuck(folders: dict[str, Path], size: int) -> None:
    """BL-27: the budget lowers the limit of a text; over it, a text is cut or refused at once."""
    engine = AsyncEngine(folders["tiny"], max_batch_tokens=32, threads=1)
    try:
        with run_server({"tiny": engine}) as server:
            text = " ".join(["the"] * (size - 2))
            start = time.monotonic()
            cut = server.http.post("/v1/embeddings", json={"input": [text, "the cat"]})
            refused = server.http.post("/v1/embeddings", json={"input": [text, "the cat"], "truncate": False})
            assert time.monotonic() - start < 5
            assert cut.status_code == 200
            assert cut.headers["x-cenote-tokens"] == str(min(size, 32) + 4)
            assert refused.status_code == (200 if size <= 32 else 400)
    finally:
        engine.close()

"""`cenote serve` under load: told to stop, and killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest

from conftest import TIMEOUT_SECONDS
from tolerances import assert_close

NUM_CLIENTS = 32
WORDS = ["the", "cat", "a", "dog", "water", "fish", "and", "is"]
TEXTS = [" ".join(Random(number).choices(WORDS, k=40)) for number in range(400)]
"""About a second of work for each client."""


@dataclass(frozen=True)
class Process:
    """A server in a process of its own."""

    popen: subprocess.Popen[str]
    url: str

    def embed(self, texts: list[str]) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/embeddings", json={"input": texts}, timeout=TIMEOUT_SECONDS)

    def unanswered(self) -> float:
        lines = httpx.get(f"{self.url}/metrics", timeout=TIMEOUT_SECONDS).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("cenote_unanswered_requests{"))


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def serving(model: Path, port: int, environment: dict[str, str]) -> Iterator[Process]:
    command = [sys.executable, "-m", "cenote", "serve", str(model), "--port", str(port), "--log-level", "warning"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as popen:
        killer = threading.Timer(TIMEOUT_SECONDS, popen.kill)
        killer.start()
        assert popen.stdout is not None
        assert popen.stderr is not None
        assert popen.stdout.readline().startswith("Cenote serves"), popen.stderr.read()
        yield Process(popen, f"http://127.0.0.1:{port}")
        killer.cancel()
        popen.kill()


def vectors(answer: httpx.Response) -> Any:
    return np.asarray([item["embedding"] for item in answer.json()["data"]])


def under_load(server: Process, threads: ThreadPoolExecutor) -> list[tuple[list[int], Future[httpx.Response]]]:
    """Start every client, each with the texts in an order of its own, and return once most of them wait."""
    orders = [Random(client).sample(range(len(TEXTS)), len(TEXTS)) for client in range(NUM_CLIENTS)]
    running = [(order, threads.submit(server.embed, [TEXTS[i] for i in order])) for order in orders]
    end = time.monotonic() + TIMEOUT_SECONDS
    while server.unanswered() < NUM_CLIENTS * 0.75:
        assert time.monotonic() < end
        assert not all(future.done() for _, future in running), "there is too little to do to test this"
    return running


def test_sigterm_under_load_loses_no_answer(model: Path, port: int, environment: dict[str, str]) -> None:
    """BL-39: everybody who was in gets a right answer, whoever comes is told so, and the process ends well."""
    with serving(model, port, environment) as server, ThreadPoolExecutor(NUM_CLIENTS) as threads:
        reference = vectors(server.embed(TEXTS))
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_SECONDS) as late:
            late.get("/health")
            running = under_load(server, threads)
            started = time.monotonic()
            server.popen.send_signal(signal.SIGTERM)
            while late.get("/ready").status_code == 200:
                assert time.monotonic() - started < 5
            refused = httpx.post(f"{server.url}/v1/embeddings", json={"input": "the cat"}, timeout=TIMEOUT_SECONDS)
        assert refused.status_code == 503
        statuses = []
        for order, future in running:
            answer = future.result(TIMEOUT_SECONDS)
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                assert_close(vectors(answer), reference[order])
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) >= NUM_CLIENTS * 0.75
        assert server.popen.wait(30) == 0
        assert time.monotonic() - started < 40


def test_sigkill_under_load_is_seen_at_once_and_the_port_is_free_again(
    model: Path, port: int, environment: dict[str, str]
) -> None:
    with serving(model, port, environment) as server, ThreadPoolExecutor(NUM_CLIENTS) as threads:
        before = vectors(server.embed(TEXTS[:3]))
        running = under_load(server, threads)
        server.popen.kill()
        killed = time.monotonic()
        for _, future in running:
            error = future.exception(TIMEOUT_SECONDS)
            assert error is None or isinstance(error, httpx.TransportError)
        assert time.monotonic() - killed < 5
        assert any(future.exception() is not None for _, future in running)
    with serving(model, port, environment) as again:
        assert_close(vectors(again.embed(TEXTS[:3])), before)
        assert httpx.get(f"{again.url}/health", timeout=TIMEOUT_SECONDS).status_code == 200

"""A real server in a thread of the test process: uvicorn on a free port around real engines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx
import openai

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from cenote.server.app import create_app
from cenote.server.gate import Gate
from cenote.server.listen import bind, release, url_of
from cenote.server.opening import Opener
from cenote.server.run import Server
from cenote.server.tracing import Tracing

TIMEOUT_SECONDS = 30.0
T = TypeVar("T")


def ask(answer: Awaitable[T]) -> T:
    """Wait for an engine's answer, in an event loop of its own."""

    async def wait() -> T:
        return await answer

    return asyncio.run(wait())


@dataclass(frozen=True)
class RunningServer:
    """`http` is a plain client with the server as its base, `client` OpenAI's own."""

    url: str
    engines: Mapping[str, AsyncEngine]
    http: httpx.Client
    client: openai.OpenAI
    server: Server

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of the metric's samples that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = self.http.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if all(label in line for label in wanted))


@contextmanager
def run_server(
    engines: Mapping[str, AsyncEngine],
    options: ServerOptions | None = None,
    tracing: Tracing | None = None,
    opener: Opener | None = None,
) -> Iterator[RunningServer]:
    """Serve `engines` until the block ends. The engines stay open."""
    options = options or ServerOptions(port=0, shutdown_timeout=5)
    listener = bind(options)
    ready = threading.Event()
    gate = Gate()
    server = Server(create_app(engines, options, gate, tracing, opener), options, gate, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = url_of(listener, options)
    try:
        assert ready.wait(TIMEOUT_SECONDS), "the server did not start"
        with (
            httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS) as http,
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_SECONDS) as client,
        ):
            yield RunningServer(url, engines, http, client, server)
    finally:
        server.stop()
        thread.join(TIMEOUT_SECONDS)
        release(listener, options)
    assert not thread.is_alive(), "the server did not stop"

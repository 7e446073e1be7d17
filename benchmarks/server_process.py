"""A server under measurement: started on a free loopback port, waited for until it answers, and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
POLL_SECONDS = 0.05
PROBE_LIMIT_SECONDS = 30.0


class ServerStartError(SystemExit):
    """A server ended before its first answer, or gave none in time."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a server is started, asked whether it is ready, and stopped. `command` has `port` in it."""

    command: list[str]
    port: int
    path: str = "/health"
    body: bytes | None = None
    """what is posted to `path` until it is answered; None: GET"""
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    """where the output goes; None: errors to the terminal, the rest nowhere"""
    start_limit_seconds: float = 60.0
    stop_limit_seconds: float = 60.0
    """time to end by itself when it is told to; then, or at once with 0, all its processes are killed"""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that answers, and the seconds from its start to its first answer."""

    server: Server
    process: subprocess.Popen[bytes]
    ready_seconds: float

    def stop(self) -> int:
        """Tell it to end, and return its exit code. Raises `subprocess.TimeoutExpired` where it does not."""
        self.process.terminate()
        return self.process.wait(self.server.stop_limit_seconds)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(server: Server) -> Iterator[Running]:
    """Run a server, in a session of its own. Raises `ServerStartError`."""
    start = time.perf_counter()
    with ExitStack() as stack:
        log = stack.enter_context(server.log.open("wb")) if server.log is not None else None
        process = subprocess.Popen(
            server.command,
            env={**os.environ, **server.environment},
            stdout=log or subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        stack.callback(_end, process, server)
        _wait_until_ready(process, server)
        yield Running(server=server, process=process, ready_seconds=time.perf_counter() - start)


def _end(process: subprocess.Popen[bytes], server: Server) -> None:
    if server.stop_limit_seconds > 0:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(server.stop_limit_seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # some have processes of their own
    process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], server: Server) -> None:
    end = time.monotonic() + server.start_limit_seconds
    request = urllib.request.Request(server.url + server.path, server.body, {"Content-Type": "application/json"})
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ServerStartError(f"the server ended at start with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(request, timeout=PROBE_LIMIT_SECONDS):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(POLL_SECONDS)
    raise ServerStartError(f"the server gave no answer within {server.start_limit_seconds:.0f} s of its start")

"""Running the application until a signal comes, and stopping it in good order.

The first signal closes the gate: `/ready` turns 503 and new work is refused, on connections that are open and on new
ones alike, while what runs is finished. When nothing runs any more, or the time is up, the connections are closed, and
what still ran is told so. A second signal does that at once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from cenote.config import ServerOptions
from cenote.errors import OptionError
from cenote.server.gate import Gate

logger = logging.getLogger(__name__)

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a process that SIGTERM ended."""


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Until the block ends, let SIGTERM end the process at once, also as the first process of a container.

    There the system ignores it by default, and a server that loads its models could only be killed.
    """
    previous = signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class Server(uvicorn.Server):
    """uvicorn around `app`; `on_ready` is called once it accepts connections."""

    def __init__(self, app: ASGIApp, options: ServerOptions, gate: Gate, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            lifespan="off",
            ws="none",
            server_header=False,
            ssl_certfile=options.ssl_certfile,
            ssl_keyfile=options.ssl_keyfile,
        )
        super().__init__(config)
        self._gate = gate
        self._grace_seconds = float(options.shutdown_timeout)
        self._stopped_at = float("inf")
        self._on_ready = on_ready

    def stop(self) -> None:
        """Begin to stop; the second time, stop at once."""
        self._gate.close()
        self.force_exit = self.should_exit
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn calls it
        self._captured_signals.append(sig)
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
        except OSError as error:
            raise OptionError(f"cannot listen: {error.strerror}; choose another --port") from None
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to close the connections now; called ten times a second."""
        if not await super().on_tick(counter):
            return False
        now = time.monotonic()
        if self._stopped_at > now:
            self._stopped_at = now
            logger.info("stopping: what runs has %d seconds", self._grace_seconds)
        left = 0.0 if self.force_exit else max(0.0, self._stopped_at + self._grace_seconds - now)
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]  # it may be a part of one
        return left == 0.0 or self._gate.is_empty


def run(server: Server, listener: socket.socket) -> None:
    """Serve until SIGTERM, after which it returns, or SIGINT, after which it raises `KeyboardInterrupt`."""
    # uvicorn raises the signal once more when it is done; the default handler would end the process with status 143.
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, previous)

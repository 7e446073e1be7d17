"""Taking the port, and running the application on it until a signal comes."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from cenote.errors import OptionError


def bind(host: str, port: int) -> socket.socket:
    """Take `port` on `host`, not listening yet, so that a busy port is known before a model is loaded.

    Raises `OptionError` where it cannot be taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OptionError(
            f"cannot listen on host {host!r}: {error.strerror}; give an address such as 127.0.0.1"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OptionError(
            f"cannot listen on {host} port {port}: {error.strerror}; stop what uses it or choose another --port"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address that a client on this machine opens."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: ASGIApp, listener: socket.socket, shutdown_timeout: int, on_ready: Callable[[], None]) -> None:
    """Serve `app` until SIGTERM, after which it returns, or SIGINT, after which it raises `KeyboardInterrupt`.

    Requests that run then get `shutdown_timeout` seconds to finish.
    """
    # uvicorn raises the signal once more when it is done; the default handler would end the process with status 143.
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        make_server(app, shutdown_timeout, on_ready).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, previous)


def make_server(app: ASGIApp, shutdown_timeout: int, on_ready: Callable[[], None]) -> uvicorn.Server:
    """Return the server that `run` runs; `on_ready` is called once it accepts connections."""
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=shutdown_timeout,
    )
    return _Server(config, on_ready)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
        except OSError as error:
            raise OptionError(f"cannot listen: {error.strerror}; choose another --port") from None
        self._on_ready()

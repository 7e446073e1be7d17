"""The address of a server: taking it, and naming it to people."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import stat
from pathlib import Path

from cenote.config import ServerOptions
from cenote.errors import OptionError


def bind(options: ServerOptions) -> socket.socket:
    """Take the address, not listening yet, so that a busy one is known before a model is loaded.

    Raises `OptionError` where it cannot be taken, or the TLS certificate not be read.
    """
    _check_certificate(options)
    return _bind_port(options.host, options.port) if options.uds is None else _bind_path(options.uds)


def _bind_port(host: str, port: int) -> socket.socket:
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


def _bind_path(path: str) -> socket.socket:
    """Listen on a Unix socket at `path`; one that a server left behind when it was killed is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(path)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise OptionError(f"cannot listen on the socket {path}: {reason}; choose another --uds") from None
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket at `path` if nobody listens there. Raises `OSError` for anything else that is there."""
    if not os.path.lexists(path) or not stat.S_ISSOCK(os.lstat(path).st_mode):
        return  # taking the path fails by itself where a file is there
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)


def _check_certificate(options: ServerOptions) -> None:
    if options.ssl_certfile is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.ssl_certfile, options.ssl_keyfile, _no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = " and ".join(filter(None, (options.ssl_certfile, options.ssl_keyfile)))
        raise OptionError(f"cannot use the certificate in {files}: {error}; both must be PEM files") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and nobody is asked for its password")


def is_public(listener: socket.socket) -> bool:
    """Return whether other machines can reach it."""
    return listener.family != socket.AF_UNIX and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket, options: ServerOptions) -> str:
    """Return the address that a client on this machine opens; for a Unix socket the one to ask for through it."""
    scheme = "http" if options.ssl_certfile is None else "https"
    if listener.family == socket.AF_UNIX:
        return f"{scheme}://localhost"
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def release(listener: socket.socket, options: ServerOptions) -> None:
    """Close the address; the file of a Unix socket goes with it."""
    listener.close()
    if options.uds is not None:
        Path(options.uds).unlink(missing_ok=True)

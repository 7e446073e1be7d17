"""API keys: who may use the server. Keys are kept as digests and compared in constant time; none is ever logged."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cenote.config import ServerOptions
from cenote.errors import OptionError
from cenote.server.failures import Failure

_BEARER = re.compile(rb"bearer\s+", re.IGNORECASE)
_HEADERS = (b"authorization", b"x-api-key", b"api-key")
"""Where clients put their key. In the first one also without the scheme: LlamaIndex's client for TEI leaves it out."""


def read_keys(options: ServerOptions) -> tuple[str, ...]:
    """Return all keys of the options and of their file; none means that everybody may use the server.

    Raises `OptionError` for a file that cannot be read or has no key in it, and where `admin` is on without any key.
    """
    keys = options.api_key if options.api_key_file is None else _with_file(options, options.api_key_file)
    if options.admin and not keys:
        raise OptionError("admin needs a key, since it decides what the server computes: set --api-key-file")
    return keys


def _with_file(options: ServerOptions, path: str) -> tuple[str, ...]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read api_key_file {path}: {error}") from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise OptionError(f"api_key_file {path} has no key; it has one on each line")
    return ServerOptions(api_key=(*options.api_key, *keys)).api_key


class Keys:
    """Pure ASGI middleware: refuses every request without a key of `keys`, but those for the paths that are `free`."""

    def __init__(
        self, app: ASGIApp, keys: Iterable[str], free: Collection[str], refuse: Callable[[str, Failure], Response]
    ) -> None:
        """`refuse` makes the answer for a path."""
        self._app = app
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)
        self._free = free
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._free:
            await self._app(scope, receive, send)
            return
        given = _given(scope["headers"])
        if any(map(self._is_known, given)):
            await self._app(scope, receive, send)
            return
        await self._refuse(scope["path"], _failure(is_missing=not given))(scope, receive, send)

    def _is_known(self, given: bytes) -> bool:
        digest = hashlib.sha256(given).digest()
        is_known = False
        for known in self._digests:
            is_known |= hmac.compare_digest(digest, known)
        return is_known


def _given(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return what may be a key: of several headers each, since one may be there for a proxy."""
    return [
        _BEARER.sub(b"", value, count=1) if name == b"authorization" else value
        for name, value in headers
        if name in _HEADERS
    ]


def _failure(*, is_missing: bool) -> Failure:
    fault = "this server needs an API key" if is_missing else "the API key is not one of this server's"
    return Failure(
        status=401,
        message=f"{fault}: send it as `Authorization: Bearer KEY`",
        code="invalid_api_key",
        headers={"www-authenticate": 'Bearer realm="cenote"'},
    )

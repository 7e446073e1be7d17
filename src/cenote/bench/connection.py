"""HTTP/1.1 over a plain socket: one request at a time, with as little work as possible.

On a shared machine a heavy client would be measured instead of the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cenote.errors import OptionError

ANSWER_TIMEOUT_SECONDS = 30.0
HEADER_LIMIT = 1 << 16

FAILURES = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
"""What a connection raises where no answer came, or none that is HTTP; TimeoutError is an OSError."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where requests go: one route of one server."""

    host: str
    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def head(self, length: int) -> bytes:
        """Return the head of a request with a JSON body of `length` bytes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}:{self.port}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode("latin-1")


def parse_target(url: str, api_key: str | None = None) -> Target:
    """Return the target of an http or https address. Raises `OptionError` for anything else."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise OptionError(f"--url {url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"--url {url!r} must be an address such as http://127.0.0.1:8000/v1/embeddings")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not (path + (api_key or "")).isascii() or not (path + (api_key or "")).isprintable() or " " in path:
        raise OptionError("the path of --url and the key may have only printable ASCII characters")
    return Target(
        host=parts.hostname,
        port=port,
        path=path,
        headers={} if not api_key else {"Authorization": f"Bearer {api_key}"},
        tls=ssl.create_default_context() if parts.scheme == "https" else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes

    def failure(self) -> str | None:
        """Return what is wrong with it, if anything is."""
        if self.status == 200:
            return None
        return f"status {self.status}: {self.body[:200].decode('utf-8', 'replace')}"


class Connection:
    """One connection to a target, opened on first use and again after a failure."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> Answer:
        """Send one request and return its answer, whole. Raises one of `FAILURES`, and is closed then."""
        is_done = False
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                reader, writer = await self._open()
                writer.write(self._target.head(len(body)) + body)
                await writer.drain()
                answer, stays_open = await _read_answer(reader)
            is_done = stays_open
        finally:
            if not is_done:
                self.close()
        return answer

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._stream is not None and self._stream[0].at_eof():
            self.close()  # the server has closed it while it was idle
        if self._stream is None:
            target = self._target
            self._stream = await asyncio.open_connection(target.host, target.port, ssl=target.tls, limit=HEADER_LIMIT)
        return self._stream


async def _read_answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Return an answer, and whether the server keeps the connection open."""
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        raise ValueError("the answer has neither a Content-Length nor chunks")
    answer = Answer(status=int(status_line.split(" ")[1]), body=body)
    return answer, headers.get("connection", "").lower() != "close"


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while length := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        chunks.append(await reader.readexactly(length))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(chunks)

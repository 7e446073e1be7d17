"""A closed-loop load generator: a fixed number of clients, each of which sends its next request after its last answer.

It speaks HTTP/1.1 over plain sockets, since on a shared machine a heavy client would be measured instead of the
server. Its own CPU time is part of the result.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

ANSWER_TIMEOUT_SECONDS = 30.0
HEADER_LIMIT = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send: `bodies` in turn, by `num_clients` at once, for `seconds` after `warmup_seconds`."""

    host: str
    port: int
    path: str
    bodies: Sequence[bytes]
    num_clients: int
    seconds: float
    warmup_seconds: float = 1.0


@dataclass(kw_only=True)
class LoadResult:
    """What came back within the measured time. A latency ends when the whole body has been read."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    """seconds, one for each good answer"""
    answered: list[int] = field(default_factory=list)
    """the index into `Load.bodies` of each good answer"""
    num_failed: int = 0
    first_failure: str | None = None
    cpu_seconds: float = 0.0
    """CPU time of the generator's own process"""

    @property
    def requests_per_second(self) -> float:
        return len(self.answered) / self.seconds

    def percentile(self, percent: float) -> float:
        """Return the latency in seconds that `percent` of the good answers did not exceed; NaN without any."""
        return float(np.percentile(self._latencies_np(), percent)) if self.latencies else float("nan")

    def _latencies_np(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.latencies, dtype=np.float64)


def run_load(load: Load) -> LoadResult:
    """Send `load` and return what was measured. Failed requests are counted, never raised."""
    return asyncio.run(_run(load))


async def _run(load: Load) -> LoadResult:
    result = LoadResult(seconds=load.seconds)
    clients = [_Client(load, result) for _ in range(load.num_clients)]
    indices = itertools.cycle(range(len(load.bodies)))
    start = time.perf_counter() + load.warmup_seconds
    work = asyncio.gather(*(client.run(indices, start) for client in clients))
    await asyncio.sleep(load.warmup_seconds)
    cpu_start = time.process_time()
    await asyncio.sleep(load.seconds)
    result.cpu_seconds = time.process_time() - cpu_start
    await work
    return result


class _Client:
    """One client: one connection, opened again after a failure."""

    def __init__(self, load: Load, result: LoadResult) -> None:
        self._load = load
        self._result = result
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, indices: Iterator[int], start: float) -> None:
        """Send until the measured time is over; only what is answered inside it counts."""
        end = start + self._load.seconds
        while (sent := time.perf_counter()) < end:
            index = next(indices)
            failure = await self._send(self._load.bodies[index])
            received = time.perf_counter()
            if start <= received < end:
                self._count(index, received - sent, failure)
            if failure is not None:
                self._close()
                await asyncio.sleep(0.01)
        self._close()

    def _count(self, index: int, latency: float, failure: str | None) -> None:
        if failure is None:
            self._result.answered.append(index)
            self._result.latencies.append(latency)
        else:
            self._result.num_failed += 1
            self._result.first_failure = self._result.first_failure or failure

    async def _send(self, body: bytes) -> str | None:
        """Send one request and read its answer; return what failed, if anything did."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                if self._stream is None:
                    self._stream = await asyncio.open_connection(self._load.host, self._load.port, limit=HEADER_LIMIT)
                reader, writer = self._stream
                writer.write(self._head(len(body)) + body)
                await writer.drain()
                return await _read_answer(reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:  # TimeoutError is an OSError
            return f"{type(error).__name__}: {error}"

    def _head(self, length: int) -> bytes:
        load = self._load
        return (
            f"POST {load.path} HTTP/1.1\r\nHost: {load.host}:{load.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None


async def _read_answer(reader: asyncio.StreamReader) -> str | None:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "content-length" not in headers:
        raise ValueError("the answer has no Content-Length")
    body = await reader.readexactly(int(headers["content-length"]))
    status = status_line.split(" ")[1]
    return None if status == "200" else f"status {status}: {body[:200].decode('utf-8', 'replace')}"

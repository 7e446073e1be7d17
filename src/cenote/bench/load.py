"""Load generators: closed loop, a fixed number of clients, and open loop, arrivals at a rate that no answer slows.

In a closed loop each client sends its next request after its last answer, so a slow server is asked less. In an open
loop requests are due at times drawn beforehand (Poisson), and a latency is counted from the time at which its request
was due: one that had to wait for its turn has waited. The generator's own CPU time is part of the result.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cenote.bench.connection import FAILURES, Connection, Target

MAX_CONNECTIONS = 500
"""Of an open loop. Requests that are due while all of them are busy wait, and their latency says so."""

_TOTAL_TOKENS = re.compile(rb'"total_tokens"\s*:\s*(\d+)')


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send: `bodies` in turn, for `seconds` after `warmup_seconds`.

    By `num_clients` at once, or, where `rate` is given, that many requests a second on average.
    """

    host: str
    port: int
    path: str
    bodies: Sequence[bytes]
    num_clients: int = 1
    rate: float | None = None
    seed: int = 0
    seconds: float
    warmup_seconds: float = 1.0
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    @property
    def target(self) -> Target:
        return Target(host=self.host, port=self.port, path=self.path, headers=self.headers, tls=self.tls)


@dataclass(kw_only=True)
class LoadResult:
    """What came back. A latency ends when the whole body has been read.

    Counted are the answers within the measured time (closed loop), or to the requests that were due in it (open loop).
    """

    seconds: float
    """the measured time; in an open loop until the last of its answers, if that came later"""
    latencies: list[float] = field(default_factory=list)
    """seconds, one for each good answer"""
    answered: list[int] = field(default_factory=list)
    """the index into `Load.bodies` of each good answer"""
    num_failed: int = 0
    first_failure: str | None = None
    max_in_flight: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    """the `total_tokens` of each body, where the server says them"""
    cpu_seconds: float = 0.0
    """CPU time of the generator's own process"""

    @property
    def requests_per_second(self) -> float:
        return len(self.answered) / self.seconds

    @property
    def num_tokens(self) -> int | None:
        """Tokens of all good answers; `None` where the server does not say them."""
        if not self.answered or not set(self.answered) <= set(self.tokens):
            return None
        return sum(self.tokens[index] for index in self.answered)

    def percentile(self, percent: float) -> float:
        """Return the latency in seconds that `percent` of the good answers did not exceed; NaN without any."""
        return float(np.percentile(self._latencies_np(), percent)) if self.latencies else float("nan")

    def mean(self) -> float:
        """Return the mean latency in seconds; NaN without any."""
        return float(self._latencies_np().mean()) if self.latencies else float("nan")

    def _latencies_np(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.latencies, dtype=np.float64)


def run_load(load: Load) -> LoadResult:
    """Send `load` and return what was measured. Failed requests are counted, never raised."""
    return asyncio.run(_closed_loop(load) if load.rate is None else _open_loop(load, load.rate))


async def _closed_loop(load: Load) -> LoadResult:
    result = LoadResult(seconds=load.seconds, max_in_flight=load.num_clients)
    indices = itertools.cycle(range(len(load.bodies)))
    start = time.perf_counter() + load.warmup_seconds
    work = asyncio.gather(*(_client(load, result, indices, start) for _ in range(load.num_clients)))
    await asyncio.sleep(load.warmup_seconds)
    cpu_start = time.process_time()
    await asyncio.sleep(load.seconds)
    result.cpu_seconds = time.process_time() - cpu_start
    await work
    return result


async def _client(load: Load, result: LoadResult, indices: Iterator[int], start: float) -> None:
    """Send until the measured time is over; only what is answered inside it counts."""
    end = start + load.seconds
    connection = Connection(load.target)
    while (sent := time.perf_counter()) < end:
        index = next(indices)
        failure = await _send(connection, load.bodies[index], index, result)
        received = time.perf_counter()
        if start <= received < end:
            _count(result, index, received - sent, failure)
        if failure is not None:
            await asyncio.sleep(0.01)
    connection.close()


async def _open_loop(load: Load, rate: float) -> LoadResult:
    result = LoadResult(seconds=load.seconds)
    loop = _OpenLoop(load, result, time.perf_counter() + load.warmup_seconds)
    first = loop.start - load.warmup_seconds
    indices = itertools.cycle(range(len(load.bodies)))
    cpu_start = time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for due, index in zip(arrivals(rate, load.warmup_seconds + load.seconds, load.seed), indices, strict=False):
            await asyncio.sleep(first + due - time.perf_counter())
            tasks.create_task(loop.send(index, first + due))
        await asyncio.sleep(loop.start + load.seconds - time.perf_counter())
    result.seconds = max(load.seconds, loop.last_answer - loop.start)
    # The warm-up's share is taken out by its time: the rate is the same.
    result.cpu_seconds = (time.process_time() - cpu_start) * result.seconds / (load.warmup_seconds + result.seconds)
    loop.close()
    return result


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Return the times, in seconds from the start, of Poisson arrivals at `rate` a second; equal seeds, equal times."""
    rng = np.random.default_rng(seed)
    times: list[float] = []
    now = float(rng.exponential(1 / rate))
    while now < seconds:
        times.append(now)
        now += float(rng.exponential(1 / rate))
    return times


class _OpenLoop:
    """The connections of an open loop: idle ones are used again, the last first."""

    def __init__(self, load: Load, result: LoadResult, start: float) -> None:
        self.start = start
        self.last_answer = 0.0
        self._load = load
        self._result = result
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._in_flight = 0

    async def send(self, index: int, due: float) -> None:
        """Send one request that was due at `due`, and count it if that is in the measured time."""
        async with self._places:
            connection = self._idle.pop() if self._idle else Connection(self._load.target)
            self._in_flight += 1
            self._result.max_in_flight = max(self._result.max_in_flight, self._in_flight)
            failure = await _send(connection, self._load.bodies[index], index, self._result)
            self._in_flight -= 1
            self._idle.append(connection)
        if due >= self.start:
            self.last_answer = time.perf_counter()
            _count(self._result, index, self.last_answer - due, failure)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


async def _send(connection: Connection, body: bytes, index: int, result: LoadResult) -> str | None:
    """Send one request and read its answer; return what failed, if anything did."""
    try:
        answer = await connection.post(body)
    except FAILURES as error:
        return f"{type(error).__name__}: {error}"
    if index not in result.tokens and (found := _TOTAL_TOKENS.search(answer.body)):
        result.tokens[index] = int(found[1])
    return answer.failure()


def _count(result: LoadResult, index: int, latency: float, failure: str | None) -> None:
    if failure is None:
        result.answered.append(index)
        result.latencies.append(latency)
    else:
        result.num_failed += 1
        result.first_failure = result.first_failure or failure

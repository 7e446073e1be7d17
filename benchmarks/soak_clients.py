"""What the clients of the soak do, and what they see of the server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt

NUM_BULK_TEXTS = 2048
TOLERANCE = 1e-5
MIB = 2**20
HEALTH_LIMIT_SECONDS = 1.0
REFUSED: tuple[tuple[bytes, int], ...] = (
    (b'{"input": ', 400),
    (b'{"model": "soak"}', 400),
    (b'{"model": "soak", "input": []}', 400),
    (b'{"model": "soak", "input": "a", "dimensions": -1}', 400),
    (b'{"model": "soak", "input": [1e9]}', 400),
    (b'{"model": "nobody", "input": "a"}', 404),
    (b'{"model": "soak", "input": "' + b"a" * (2 * MIB) + b'"}', 413),
    (json.dumps({"model": "soak", "input": ["a"] * 4096}).encode(), 400),
)
"""Bodies, and the status of each."""


@dataclass(kw_only=True)
class Soak:
    """The server under test and what was seen of it. `expected` are the vectors of `texts`, each asked for alone."""

    process: subprocess.Popen[bytes]
    http: httpx.AsyncClient
    texts: list[str]
    expected: npt.NDArray[np.float32]
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    engine_seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """of each kind of answer: all of it, and what the engine says that it waited and took"""
    health_seconds: list[float] = field(default_factory=list)
    resident_mib: list[float] = field(default_factory=list)
    worst_difference: float = 0.0

    async def embed(self, kind: str, chosen: list[int]) -> None:
        """Ask for the vectors of some texts, and compare them."""
        self.counts[f"{kind} sent"] += 1
        started = time.perf_counter()
        answer = await self.http.post("/v1/embeddings", content=body_of([self.texts[i] for i in chosen]))
        seconds = time.perf_counter() - started
        if answer.status_code == 429:
            self.counts[f"{kind} told to come back"] += 1
            await asyncio.sleep(float(answer.headers["retry-after"]))
        elif answer.status_code != 200:
            self.faults.append(f"{kind}: status {answer.status_code}: {answer.text[:200]}")
        else:
            self.counts[f"{kind} answered"] += 1
            self.seconds[kind].append(seconds)
            in_engine = sum(float(answer.headers[f"x-cenote-{part}-ms"]) for part in ("queue", "inference")) / 1000
            self.engine_seconds[kind].append(in_engine)
            self.compare(kind, answer, chosen)

    def compare(self, kind: str, answer: httpx.Response, chosen: list[int]) -> None:
        vectors = vectors_of(answer)
        if vectors.shape != self.expected[chosen].shape:
            self.faults.append(f"{kind}: {vectors.shape} instead of {self.expected[chosen].shape}")
            return
        difference = float(np.abs(vectors - self.expected[chosen]).max())
        self.worst_difference = max(self.worst_difference, difference)
        if not difference <= TOLERANCE:
            self.faults.append(f"{kind}: a vector is off by {difference:.2g}")


def body_of(texts: list[str]) -> bytes:
    return json.dumps({"model": "soak", "input": texts, "encoding_format": "base64"}).encode()


def vectors_of(answer: httpx.Response) -> npt.NDArray[np.float32]:
    rows = [base64.b64decode(item["embedding"]) for item in answer.json()["data"]]
    return np.frombuffer(b"".join(rows), dtype="<f4").reshape(len(rows), -1)


async def bulk(soak: Soak, rng: random.Random) -> None:
    """Send one job of many texts."""
    await soak.embed("bulk", [rng.randrange(len(soak.texts)) for _ in range(NUM_BULK_TEXTS)])


async def query(soak: Soak, rng: random.Random) -> None:
    """Send one text."""
    await soak.embed("query", [rng.randrange(len(soak.texts))])
    await asyncio.sleep(rng.uniform(0, 0.1))


async def few(soak: Soak, rng: random.Random) -> None:
    """Send some texts."""
    await soak.embed("few", [rng.randrange(len(soak.texts)) for _ in range(rng.randint(1, 32))])
    await asyncio.sleep(rng.uniform(0, 0.5))


async def refused(soak: Soak, rng: random.Random) -> None:
    """Send what must be refused."""
    body, status = rng.choice(REFUSED)
    soak.counts["refused sent"] += 1
    answer = await soak.http.post("/v1/embeddings", content=body)
    if answer.status_code == status:
        soak.counts["refused"] += 1
    else:
        soak.faults.append(f"refused: status {answer.status_code} instead of {status} for {body[:60]!r}")
    await asyncio.sleep(rng.uniform(0, 0.2))


async def leaving(soak: Soak, rng: random.Random) -> None:
    """Leave in the middle of a body, or before the answer."""
    url = soak.http.base_url
    body = body_of([soak.texts[rng.randrange(len(soak.texts))] for _ in range(rng.choice((1, 100, 1000)))])
    head = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    _, writer = await asyncio.open_connection(url.host, url.port)
    is_whole = rng.random() < 0.7
    writer.write(head + (body if is_whole else body[: rng.randrange(len(body))]))
    await writer.drain()
    await asyncio.sleep(rng.uniform(0, 1.0))
    writer.close()
    soak.counts["left before the answer" if is_whole else "left in the body"] += 1


async def watch(soak: Soak, _: random.Random) -> None:
    """Look at the server's health and memory."""
    started = time.perf_counter()
    answer = await soak.http.get("/health")
    seconds = time.perf_counter() - started
    soak.health_seconds.append(seconds)
    if answer.status_code != 200 or seconds > HEALTH_LIMIT_SECONDS:
        soak.faults.append(f"health: status {answer.status_code} after {seconds:.2f} s")
    pages = int(Path(f"/proc/{soak.process.pid}/statm").read_text(encoding="ascii").split()[1])
    soak.resident_mib.append(round(pages * os.sysconf("SC_PAGE_SIZE") / MIB, 1))
    await asyncio.sleep(1.0)


Client = Callable[[Soak, random.Random], Awaitable[None]]
CLIENTS: tuple[tuple[Client, int], ...] = ((bulk, 2), (query, 2), (few, 4), (refused, 1), (leaving, 2), (watch, 1))
"""What clients do, and how many of each there are."""


async def repeat(client: Client, number: int, soak: Soak, end: float) -> None:
    """Let one client do the same until the time is over; an answer that does not come is a fault."""
    rng = random.Random(f"{client.__name__}-{number}")
    while time.monotonic() < end:
        try:
            await client(soak, rng)
        except (httpx.HTTPError, OSError) as error:
            soak.faults.append(f"{client.__name__}: {type(error).__name__}: {error}")
            await asyncio.sleep(0.1)

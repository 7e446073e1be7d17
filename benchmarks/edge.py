"""What the server itself costs: its CPU time for a request of one text, with an engine that answers at once.

Each application runs under uvicorn (httptools, uvloop) in a process of its own, whose CPU time is read before and after
blocks of `/v1/embeddings` requests over keep-alive connections. Bare Starlette and, where it is installed, bare FastAPI
give the same answer without anything around it: what the routing, the checks, the metrics and the log cost is the
difference. The blocks of the applications take turns, so that a busy moment hits them alike; on a machine with other
work CPU time itself grows, so the quietest block is given beside the median.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import importlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from report import environment, write_result

HOST = "127.0.0.1"
GOAL_MICROSECONDS = 300
WIDTH = 384
VECTOR = np.linspace(-0.1, 0.1, WIDTH, dtype=np.float32)
BASE64 = base64.b64encode(VECTOR.tobytes()).decode()
BLOCK = 208
"""Requests between two looks at the clock; a multiple of 16."""
CONNECTIONS = (1, 16)
ENCODINGS = ("base64", "float")


class StubEngine:
    """What the server needs of an `AsyncEngine`; every text has the same vector, ready."""

    healthy = True

    def __init__(self) -> None:
        from cenote.core import EngineInfo
        from cenote.outputs import Embeddings, Usage

        usage = Usage(num_tokens=[6], truncated=[False])
        self._vectors = Embeddings.wrap(VECTOR[None], usage)
        self.info = EngineInfo(
            name="stub",
            architecture="Stub",
            tasks=("embed",),
            dimensions=WIDTH,
            max_length=512,
            prompts=(),
            dtype="float32",
            device="cpu",
            num_parameters=0,
            decisions=(),
            facts=(),
            unused_weights=(),
        )

    async def embed(self, _texts: Any, **_: Any) -> Any:
        return self._vectors


def answer(encoding: str) -> dict[str, Any]:
    """Return OpenAI's answer as the bare applications write it."""
    vector: Any = BASE64 if encoding == "base64" else VECTOR.tolist()
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "model": "stub",
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
    }


def cenote_app() -> Any:
    from cenote.config import ServerOptions
    from cenote.server import logs
    from cenote.server.app import create_app

    options = ServerOptions()
    logs.configure(options.log_format, options.log_level)
    engines: Any = {"stub": StubEngine()}
    return create_app(engines, options)


def starlette_app() -> Any:
    """Read the body as JSON, write the answer as JSON, and nothing else."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def embeddings(request: Request) -> JSONResponse:
        body = await request.json()
        return JSONResponse(answer(body["encoding_format"]))

    return Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])


def fastapi_app() -> Any:
    """The same with FastAPI's validation of the body, and of nothing else."""
    from pydantic import create_model

    fastapi = importlib.import_module("fastapi")
    body_type: Any = create_model("Body", input=(str | list[str], ...), model=(str, ...), encoding_format=(str, ...))
    app = fastapi.FastAPI()

    async def embeddings(body: Any) -> Any:
        return answer(body.encoding_format)

    embeddings.__annotations__["body"] = body_type
    app.post("/v1/embeddings", response_model=None)(embeddings)
    return app


APPS = {"cenote": cenote_app, "starlette": starlette_app, "fastapi": fastapi_app}


def serve(name: str) -> None:
    """Run one application on a free port, and print the port."""
    import socket

    import uvicorn

    with socket.socket() as listener:
        listener.bind((HOST, 0))
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(
            APPS[name](),
            access_log=False,
            log_config=None,
            lifespan="off",
            ws="none",
            server_header=False,
            http="httptools",
            loop="uvloop",
        )
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def running(name: str) -> Iterator[tuple[int, int]]:
    """Run an application in a process of its own; give its process id and its port."""
    command = [sys.executable, __file__, "--serve", name]
    own = {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | own, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)


def cpu_seconds(pid: int) -> float:
    """Return the time that the threads of a process have been on a CPU, to the nanosecond."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def send(port: int, encoding: str, num_requests: int, num_connections: int) -> None:
    """Send the requests over `num_connections` connections, each of which sends its next one after its last answer."""
    body = json.dumps({"input": "What is the deepest cave?", "model": "stub", "encoding_format": encoding}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
    request = head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(number):
            writer.write(request)
            headers = await reader.readuntil(b"\r\n\r\n")
            if not headers.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"refused: {headers.decode()}")
            length = headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[one(num_requests // num_connections) for _ in range(num_connections)])


def wait_until_up(port: int) -> None:
    for _ in range(600):
        try:
            asyncio.run(send(port, "base64", 1, 1))
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("an application did not start")


def measure(names: list[str], num_blocks: int) -> list[dict[str, Any]]:
    """Return the microseconds of CPU for a request of each kind, block by block."""
    kinds = [(name, encoding, number) for encoding in ENCODINGS for number in CONNECTIONS for name in names]
    blocks: dict[tuple[str, str, int], list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        places = {name: stack.enter_context(running(name)) for name in names}
        for _, port in places.values():
            wait_until_up(port)
            asyncio.run(send(port, "base64", 512, 4))  # caches and lazy imports
        for _ in range(num_blocks):
            for kind in kinds:
                blocks[kind].append(_block(places[kind[0]], *kind[1:]))
    return [
        {
            **dict(zip(("app", "encoding", "connections"), kind, strict=True)),
            "cpu_microseconds": round(statistics.median(each), 1),
            "quietest": round(min(each), 1),
            "blocks": [round(value, 1) for value in each],
        }
        for kind, each in blocks.items()
    ]


def _block(place: tuple[int, int], encoding: str, num_connections: int) -> float:
    pid, port = place
    before = cpu_seconds(pid)
    asyncio.run(send(port, encoding, BLOCK, num_connections))
    return (cpu_seconds(pid) - before) / BLOCK * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15, help=f"blocks of {BLOCK} requests of each kind")
    parser.add_argument("--serve", choices=list(APPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    names = [name for name in APPS if name != "fastapi" or importlib.util.find_spec("fastapi")]
    rows = measure(names, options.blocks)
    packages = {name: importlib.metadata.version(name) for name in ("starlette", "uvicorn", "httptools", "uvloop")}
    result = {"benchmark": "edge", **environment(), "server_versions": packages, "requests": BLOCK * options.blocks}
    result |= {"goal_microseconds": GOAL_MICROSECONDS, "rows": rows}
    for row in rows:
        print(f"{row['app']:10} {row['encoding']:7} {row['connections']:2} connections:", end=" ")
        print(f"{row['cpu_microseconds']:6.1f} us of CPU, {row['quietest']:6.1f} in the quietest block")
    print(f"written to {write_result('edge', result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

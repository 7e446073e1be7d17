"""`cenote serve` as a process of its own, and what the tests ask it by themselves to know what is right."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

START_LIMIT_SECONDS = 120.0
STOP_LIMIT_SECONDS = 30.0
MODEL = "all-MiniLM-L6-v2"
QUERY = "Is the water clear?"
TEXTS = ["The water of the cave is clear.", "You can see the bottom.", "Taxes are due in May.", "Das Wasser ist klar."]
CENOTE_BIN = Path(os.environ["CENOTE_BIN"])
"""The folder of the programs of Cenote's own environment."""


@dataclass(frozen=True)
class Server:
    """A running server. `http` is a plain client with the server as its base."""

    url: str
    http: httpx.Client

    def post(self, path: str, **body: Any) -> Any:
        """Return the JSON of a plain request."""
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def vectors(self, texts: list[str], **fields: Any) -> npt.NDArray[np.float32]:
        """Return the vectors `[n, D]` of `texts` as OpenAI's route gives them in numbers, one request for each text."""
        body = {"model": MODEL, "encoding_format": "float"} | fields
        answers = [self.post("/openai/v1/embeddings", input=text, **body) for text in texts]
        return np.array([answer["data"][0]["embedding"] for answer in answers], dtype=np.float32)

    def ranking(self, texts: list[str], model: str = "my-reranker") -> list[tuple[int, float]]:
        """Return `(index, score)` of `texts` for `QUERY`, the best one first, from one request for each text."""
        answers = [self.post("/vllm/score", model=model, queries=QUERY, documents=text) for text in texts]
        scores = [answer["data"][0]["score"] for answer in answers]
        return sorted(enumerate(scores), key=lambda pair: -pair[1])

    def num_requests(self, status: int) -> float:
        """Return how many requests of a model, or for one, were answered with `status` so far."""
        lines = self.http.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("cenote_requests_total{") and f'status="{status}"' in line]
        found = [line for line in found if 'route="/metrics"' not in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@contextmanager
def serve(folders: Mapping[str, Path], log: Path) -> Iterator[Server]:
    """Run `cenote serve` on a free port, ready for requests, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(CENOTE_BIN / "cenote"), "serve", "--port", str(port)]
    for name, folder in folders.items():
        command += [str(folder), "--name", name]
    own = {"OMP_NUM_THREADS": "1", "CENOTE_THREADS": "1", "CENOTE_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out, subprocess.Popen(command, env=os.environ | own, stdout=out, stderr=out) as process:
        try:
            _wait_until_healthy(process, url, log)
            with httpx.Client(base_url=url, timeout=60) as http:
                yield Server(url, http)
        finally:
            process.terminate()
            process.wait(STOP_LIMIT_SECONDS)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, f"the server stopped at start: {log.read_text()[-2000:]}"
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError("the server was not healthy in time")


def examples(page: Path) -> list[str]:
    """Return the examples of clients that a document has: its blocks of `python client`."""
    return re.findall(r"^```python client\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

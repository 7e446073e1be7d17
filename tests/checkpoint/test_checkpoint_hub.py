"""What is fetched from a hub, and what a person reads when it refuses: against a hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

COMMIT = "0123456789abcdef0123456789abcdef01234567"
UNUSED = ("onnx/model.onnx", "tf_model.h5", "optimizer.pt", "pytorch_model.bin", "run.py")


class _Hub(BaseHTTPRequestHandler):
    """The three routes that a download uses."""

    root: ClassVar[Path]
    fetched: ClassVar[list[str]]
    refusal: ClassVar[tuple[int, str] | None]
    tokens: ClassVar[set[str | None]]

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self.tokens.add(self.headers.get("Authorization"))
        if self.refusal is not None:
            status, code = self.refusal
            self._send(status, b"{}", {"X-Error-Code": code}, body=body)
        elif self.path.startswith("/api/"):
            files = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]
            tree = [{"type": "file", "path": f, "oid": "0", "size": (self.root / f).stat().st_size} for f in files]
            info = {"id": "someone/model", "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            answer = tree if "/tree/" in self.path else info
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"}, body=body)
        else:
            name = self.path.split(f"/resolve/{COMMIT}/", 1)[1]
            data = (self.root / name).read_bytes()
            if body:
                self.fetched.append(name)
            self._send(200, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}, body=body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


PROGRAM = """
import json, sys
from cenote.checkpoint import locate, read_checkpoint
from cenote.errors import CheckpointError
try:
    located = locate("someone/model", revision=sys.argv[1] or None)
    spec = read_checkpoint(located.folder, name=located.name, revision=located.revision)
    files = [path.name for path in spec.weight_files]
    print(json.dumps({"name": spec.name, "revision": spec.revision, "tasks": spec.tasks, "files": files}))
except CheckpointError as error:
    print(json.dumps({"error": str(error)}))
"""


@dataclass(frozen=True)
class Hub:
    """A hub on this machine with one model, `someone/model`, and a process that asks it."""

    handler: type[_Hub]
    environ: dict[str, str]

    def locate(self, revision: str = "", **environ: str) -> dict[str, Any]:
        """Locate and read the model in a process of its own, whose environment points at this hub."""
        command = [sys.executable, "-c", PROGRAM, revision]
        done = subprocess.run(
            command, env={**self.environ, **environ}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture
def hub(chain: Path, tmp_path: Path) -> Iterator[Hub]:
    """Serve a sentence-transformers chain and files that nobody needs."""
    (chain / "onnx").mkdir()
    for name in UNUSED:
        (chain / name).write_bytes(b"unused")
    (chain / "README.md").write_text("# A model")
    _Hub.root, _Hub.fetched, _Hub.refusal, _Hub.tokens = chain, [], None, set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "hf_of_this_test",
    }
    yield Hub(_Hub, {**os.environ, **settings})
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_what_is_needed_is_fetched(hub: Hub) -> None:
    located = hub.locate("main")
    assert located == {
        "name": "someone/model",
        "revision": COMMIT,
        "tasks": ["embed"],
        "files": ["model.safetensors"],
    }
    fetched = set(hub.handler.fetched)
    assert {"model.safetensors", "tokenizer.json", "1_Pooling/config.json", "2_Dense/model.safetensors"} <= fetched
    assert "README.md" in fetched
    assert not set(UNUSED) & fetched
    assert "Bearer hf_of_this_test" in hub.handler.tokens


def test_pickles_are_fetched_where_there_are_no_safetensors(hub: Hub) -> None:
    tensors = load_file(hub.handler.root / "model.safetensors")
    (hub.handler.root / "model.safetensors").unlink()
    torch.save(tensors, hub.handler.root / "pytorch_model.bin")
    assert hub.locate()["files"] == ["pytorch_model.bin"]


def test_offline_asks_nobody(hub: Hub) -> None:
    assert "HF_HUB_OFFLINE is set" in hub.locate(HF_HUB_OFFLINE="1")["error"]
    assert not hub.handler.tokens
    online = hub.locate()
    hub.handler.tokens.clear()
    assert hub.locate(HF_HUB_OFFLINE="1") == online
    assert not hub.handler.tokens


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", r"neither a folder nor a hub model someone/model; .* set HF_TOKEN"),
        (403, "GatedRepo", r"someone/model is gated: accept its terms .* set HF_TOKEN"),
        (404, "RevisionNotFound", r"someone/model has no revision 'v9'"),
        (500, "", r"not in the cache and cannot be fetched"),
    ],
)
def test_refusals_say_what_to_do(hub: Hub, status: int, code: str, message: str) -> None:
    hub.handler.refusal = (status, code)
    assert re.search(message, hub.locate("v9")["error"])

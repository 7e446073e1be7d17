"""The servers of the comparison: each is started, loaded by the same generator, and stopped, one after another."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cenote.bench.corpora import make_texts
from cenote.bench.load import Load, LoadResult, run_load
from peers.environments import python_of

HOST = "127.0.0.1"
NAME = "model"
BATCH = 32
BULK_TEXTS = 256
START_LIMIT_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a contestant is started and asked."""

    command: list[str]
    path: str = "/v1/embeddings"


def servers(options: argparse.Namespace, port: int) -> dict[str, Server]:
    """Return every contestant that has a server of its own."""
    own, model = str(Path(sys.executable).with_name("cenote")), str(options.model)
    cenote = [own, "serve", model, "--name", NAME, "--device", "cpu", "--threads", str(options.threads)]
    infinity = [str(python_of("infinity").with_name("infinity_emb")), "v2", "--model-id", model]
    infinity += ["--served-model-name", NAME, "--device", "cpu", "--engine", "torch", "--dtype", "float32"]
    infinity += ["--no-bettertransformer", "--no-compile", "--no-model-warmup"]
    vllm = [str(python_of("vllm").with_name("vllm")), "serve", model, "--served-model-name", NAME]
    vllm += ["--runner", "pooling", "--dtype", "float32", "--enforce-eager"]
    vllm += ["--max-num-batched-tokens", "4096", "--max-num-seqs", "256"]
    address = ["--host", HOST, "--port", str(port)]
    return {
        "cenote": Server(command=[*cenote, "--dtype", "float32", *address]),
        "cenote int8": Server(command=[*cenote, "--dtype", "int8", *address]),
        "infinity": Server(command=[*infinity, *address], path="/embeddings"),
        "vllm": Server(command=[*vllm, *address]),
    }


def compare_online(options: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Return, for each server, its figures by number of clients, in single texts and in batches, and beside bulk."""
    results: dict[str, Any] = {}
    for name in servers(options, 0):
        if name in names:
            port = _free_port()
            with _running(servers(options, port)[name], options) as seconds:
                results[name] = {"ready_seconds": round(seconds, 1), **_measure(name, options, port)}
    return results


def _measure(name: str, options: argparse.Namespace, port: int) -> dict[str, Any]:
    path = servers(options, port)[name].path
    texts = make_texts("query", 512)
    single = _load(port, path, [[text] for text in texts], options)
    batches = _load(port, path, [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)], options)
    by_clients = {
        kind: {
            str(clients): _figures(run_load(replace(load, num_clients=clients)), size) for clients in options.clients
        }
        for kind, load, size in (("single", single, 1), ("batch", batches, BATCH))
    }
    return {**by_clients, "beside_bulk": _figures(_beside_bulk(port, path, single, options), 1)}


def _beside_bulk(port: int, path: str, single: Load, options: argparse.Namespace) -> LoadResult:
    """Measure four clients with single queries while one client sends long jobs of mixed lengths without a pause."""
    texts = make_texts("mixed", BULK_TEXTS)
    bulk = replace(_load(port, path, [texts], options), num_clients=1, seconds=options.seconds + 2)
    thread = threading.Thread(target=run_load, args=(bulk,))
    thread.start()
    try:
        return run_load(replace(single, num_clients=4))
    finally:
        thread.join()


def _load(port: int, path: str, inputs: list[list[str]], options: argparse.Namespace) -> Load:
    bodies = [json.dumps({"model": NAME, "input": each, "encoding_format": "float"}).encode() for each in inputs]
    return Load(
        host=HOST, port=port, path=path, bodies=bodies, num_clients=1, seconds=options.seconds, warmup_seconds=2.0
    )


def _figures(load: LoadResult, texts_in_each: int) -> dict[str, Any]:
    return {
        "requests_per_second": round(load.requests_per_second, 1),
        "texts_per_second": round(load.requests_per_second * texts_in_each, 1),
        "p50_ms": round(load.percentile(50) * 1000, 1),
        "p99_ms": round(load.percentile(99) * 1000, 1),
        "failed": load.num_failed,
        "first_failure": load.first_failure,
        "generator_cpu_share_of_one_core": round(load.cpu_seconds / load.seconds, 3),
    }


@contextmanager
def _running(server: Server, options: argparse.Namespace) -> Iterator[float]:
    """Run a server and give the seconds until its first answer."""
    own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "DO_NOT_TRACK": "1"}
    own |= {"OMP_NUM_THREADS": str(options.threads), "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}"}
    own["PATH"] = f"{Path(server.command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    start = time.perf_counter()
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(server.command, env=os.environ | own, start_new_session=True, **silent) as process:  # type: ignore[call-overload]
        try:
            _wait_until_ready(process, server)
            yield time.perf_counter() - start
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # some peers have processes of their own


def _wait_until_ready(process: subprocess.Popen[bytes], server: Server) -> None:
    port = server.command[server.command.index("--port") + 1]
    body = json.dumps({"model": NAME, "input": ["ready"]}).encode()
    url = f"http://{HOST}:{port}{server.path}"
    end = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server stopped at start: {' '.join(server.command)}")
        try:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise SystemExit(f"no answer after {START_LIMIT_SECONDS:.0f} s from {' '.join(server.command)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port

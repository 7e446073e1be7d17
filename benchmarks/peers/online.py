"""The servers of the comparison: all are started, and loaded in turn by the same generator.

Single texts are measured in rounds, so that a busy moment of the machine hits all alike. Answers count that come within
the measured time. Where a server is too slow for that, it is made longer, up to a limit; a request that is not answered
within the generator's own limit has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cenote.bench.corpora import make_texts
from cenote.bench.load import Load, LoadResult, run_load
from peers.contestants import in_turn, last_words, logs, max_tokens
from peers.environments import python_of
from server_process import HOST, Running, Server, ServerStartError, free_port, running

NAME = "model"
BATCH = 32
BULK_TEXTS = 256
BULK_IN_BATCHES = 24
"""A bulk job has about as many tokens as so many batches of queries."""
START_LIMIT_SECONDS = 300.0
MEASURE_LIMIT_SECONDS = 40.0
"""The longest that one measurement is stretched to, where answers take longer than it is meant to last."""
SETTLE_LIMIT_SECONDS = 180.0
"""For a server to work off what a measurement has left behind."""


def servers(options: argparse.Namespace, port: int) -> dict[str, Server]:
    """Return every contestant that has a server of its own."""
    own, model = str(Path(sys.executable).with_name("cenote")), str(options.model)
    cenote = [own, "serve", model, "--name", NAME, "--device", "cpu", "--threads", str(options.threads)]
    infinity = [str(python_of("infinity").with_name("infinity_emb")), "v2", "--model-id", model]
    infinity += ["--served-model-name", NAME, "--device", "cpu", "--engine", "torch", "--dtype", "float32"]
    infinity += ["--no-bettertransformer", "--no-compile", "--no-model-warmup"]
    vllm = [str(python_of("vllm").with_name("vllm")), "serve", model, "--served-model-name", NAME]
    vllm += ["--runner", "pooling", "--dtype", "float32", "--enforce-eager"]
    vllm += ["--max-num-batched-tokens", str(max(4096, max_tokens(options.model))), "--max-num-seqs", "256"]
    routes = {
        "cenote": ([*cenote, "--dtype", "float32"], "/v1/embeddings"),
        "cenote int8": ([*cenote, "--dtype", "int8"], "/v1/embeddings"),
        "infinity": (infinity, "/embeddings"),
        "vllm": (vllm, "/v1/embeddings"),
    }
    return {name: _server(name, *route, port, options) for name, route in routes.items()}


def _server(name: str, command: list[str], path: str, port: int, options: argparse.Namespace) -> Server:
    own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "DO_NOT_TRACK": "1"}
    own |= {"OMP_NUM_THREADS": str(options.threads), "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}"}
    own["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    return Server(
        command=[*command, "--host", HOST, "--port", str(port)],
        port=port,
        path=path,
        body=json.dumps({"model": NAME, "input": ["ready"]}).encode(),
        environment=own,
        log=logs(options.model) / f"{name.replace(' ', '-')}-server.log",
        start_limit_seconds=START_LIMIT_SECONDS,
        stop_limit_seconds=0,
    )


def compare_online(
    options: argparse.Namespace, names: list[str], left_out: dict[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each server with its figures by number of clients, in single texts and in batches, and beside bulk.

    A server comes again with each figure that is added. `left_out` gets why servers were left out, by their names.
    """
    texts = make_texts("query", 512)
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    with ExitStack() as stack:
        up = _start(options, names, left_out, stack)
        single = {name: _load(each.server, [[text] for text in texts], options) for name, each in up.items()}
        batch = {name: _load(each.server, batches, options) for name, each in up.items()}
        figures: dict[str, dict[str, Any]] = {
            name: {"ready_seconds": round(each.ready_seconds, 1), "single": {}, "batch": {}}
            for name, each in up.items()
        }
        for clients in options.clients:
            loads: dict[str, list[LoadResult]] = {name: [] for name in up}
            for number in range(options.rounds):
                for name in in_turn(list(up), number):
                    loads[name].append(_run(up[name].server, replace(single[name], num_clients=clients)))
            for name in up:
                figures[name]["single"][str(clients)] = _figures(loads[name], 1)
                yield name, figures[name]
        for clients in options.clients:
            for name, each in up.items():
                seconds = _seconds(options, clients, figures[name]["single"][str(clients)]["texts_per_second"])
                load = replace(batch[name], num_clients=clients, seconds=seconds)
                figures[name]["batch"][str(clients)] = _figures([_run(each.server, load)], BATCH)
                yield name, figures[name]
        for name in up:
            speed = max(row["texts_per_second"] for row in figures[name]["single"].values())
            seconds = _seconds(options, BULK_IN_BATCHES, speed)
            figures[name]["beside_bulk"] = _beside_bulk(replace(single[name], seconds=seconds))
            yield name, figures[name]


def _start(
    options: argparse.Namespace, names: list[str], left_out: dict[str, str], stack: ExitStack
) -> dict[str, Running]:
    """Start the servers and return those that answer; the others are left out."""
    up = {}
    for name in servers(options, 0):
        if name in names:
            server = servers(options, free_port())[name]
            try:
                up[name] = stack.enter_context(running(server))
            except ServerStartError as error:
                assert server.log is not None
                left_out[name] = f"{error}: {last_words(server.log)}"
    return up


def _seconds(options: argparse.Namespace, clients: int, texts_per_second: float) -> float:
    """Return how long batches are measured: two answers to each client, at the speed of single texts, but bounded."""
    two_each = 2 * clients * BATCH / max(texts_per_second, 1.0)
    return max(float(options.seconds), min(two_each, MEASURE_LIMIT_SECONDS))


def _run(server: Server, load: Load) -> LoadResult:
    """Measure, and let the server work off what it was asked for and nobody waits for any more."""
    result = run_load(load)
    request = urllib.request.Request(server.url + server.path, server.body, {"Content-Type": "application/json"})
    with suppress(OSError), urllib.request.urlopen(request, timeout=SETTLE_LIMIT_SECONDS):
        pass
    return result


def _beside_bulk(single: Load) -> dict[str, Any]:
    """Measure four clients with single queries while one client sends long jobs of mixed lengths without a pause."""
    body = json.dumps({"model": NAME, "input": make_texts("mixed", BULK_TEXTS), "encoding_format": "float"}).encode()
    with ThreadPoolExecutor(1) as thread:
        bulk = thread.submit(run_load, replace(single, bodies=[body], seconds=single.seconds + 2))
        figures = _figures([run_load(replace(single, num_clients=4))], 1)
    return figures | {"bulk_jobs_answered": len(bulk.result().answered)}


def _load(server: Server, inputs: list[list[str]], options: argparse.Namespace) -> Load:
    bodies = [json.dumps({"model": NAME, "input": each, "encoding_format": "float"}).encode() for each in inputs]
    return Load(
        host=HOST, port=server.port, path=server.path, bodies=bodies, seconds=options.seconds, warmup_seconds=2.0
    )


def _figures(loads: list[LoadResult], texts_in_each: int) -> dict[str, Any]:
    """Return what is reported: medians over the rounds; without any answer the latencies are None."""
    speed = statistics.median(load.requests_per_second for load in loads)
    answered = [load for load in loads if load.latencies]
    p50, p99 = (
        round(statistics.median(load.percentile(percent) for load in answered) * 1000, 1) if answered else None
        for percent in (50, 99)
    )
    return {
        "seconds": round(sum(load.seconds for load in loads), 1),
        "answered": sum(len(load.answered) for load in loads),
        "requests_per_second": round(speed, 1),
        "rounds": [round(load.requests_per_second, 1) for load in loads],
        "texts_per_second": round(speed * texts_in_each, 1),
        "p50_ms": p50,
        "p99_ms": p99,
        "failed": sum(load.num_failed for load in loads),
        "first_failure": next((load.first_failure for load in loads if load.first_failure), None),
        "generator_cpu_share_of_one_core": round(
            sum(load.cpu_seconds for load in loads) / sum(load.seconds for load in loads), 3
        ),
    }

"""A real server under mixed load, faults and leaving clients: no answer may be lost or wrong, and memory stays flat.

Bulk jobs of 2,048 texts, single queries, requests of a few texts, requests that must be refused, and clients that leave
in the middle of a body or before their answer. Every vector is compared with that of its text alone, asked for while
nothing else ran. Ends with exit code 1 where anything was lost, wrong or left over, or memory grew by more than the
limit.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from cenote.bench.corpora import make_texts
from report import DEFAULT_MODEL, environment, write_result
from server_process import Running, Server, free_port, running
from soak_clients import CLIENTS, MIB, Soak, body_of, repeat, vectors_of

IDLE_LIMIT_SECONDS = 60.0


async def metrics(soak: Soak) -> dict[str, float]:
    """Return the sum of each metric's samples."""
    found: dict[str, float] = {}
    for line in (await soak.http.get("/metrics")).text.splitlines():
        if sample := re.fullmatch(r"(\w+)(?:\{.*\})? (\S+)", line):
            found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
    return found


async def left_over(soak: Soak) -> dict[str, float]:
    """Return what the gauges show once all clients are done; zeros, in the end."""
    end = time.monotonic() + IDLE_LIMIT_SECONDS
    while True:
        found = await metrics(soak)
        gauges = {name: found[f"cenote_{name}"] for name in ("queued_requests", "queued_tokens", "unanswered_requests")}
        if not any(gauges.values()) or time.monotonic() > end:
            return gauges
        await asyncio.sleep(0.1)


def grown_mib(samples: list[float]) -> float:
    """Return the median of the last third less that of the first, the first tenth left out: caches fill up there."""
    settled = samples[len(samples) // 10 :]
    third = len(settled) // 3
    return round(statistics.median(settled[-third:]) - statistics.median(settled[:third]), 1) if third else 0.0


def percentiles(values: Sequence[float], unit: float) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum, in parts of `unit`."""
    values_np = np.asarray(values or [0.0]) / unit
    found = {f"p{percent}": round(float(np.percentile(values_np, percent)), 2) for percent in (50, 99)}
    return found | {"max": round(float(values_np.max()), 2)}


def summarise(soak: Soak, gauges: dict[str, float], found: dict[str, float]) -> dict[str, Any]:
    """Return the figures of a run."""
    step = found["cenote_step_seconds_sum"] / max(1.0, found["cenote_step_seconds_count"])
    return {
        "counts": dict(sorted(soak.counts.items())),
        "faults": len(soak.faults),
        "first_faults": soak.faults[:10],
        "worst_difference": soak.worst_difference,
        "left_over": gauges,
        "steps": int(found["cenote_steps_total"]),
        "tokens": int(found["cenote_tokens_total"]),
        "mean_step_ms": round(step * 1000, 1),
        "ms": {kind: percentiles(soak.seconds[kind], 0.001) for kind in soak.seconds},
        "ms_in_engine": {kind: percentiles(soak.engine_seconds[kind], 0.001) for kind in soak.seconds},
        "query_steps": percentiles(soak.engine_seconds["query"], step),
        "health_ms_p99": round(float(np.percentile(soak.health_seconds or [0.0], 99)) * 1000, 1),
        "resident_mib": {"samples": soak.resident_mib[:: max(1, len(soak.resident_mib) // 60)]},
        "growth_mib": grown_mib(soak.resident_mib),
    }


async def run(server: Running, options: argparse.Namespace) -> dict[str, Any]:
    """Ask for the expected vectors, run the load, and return the figures."""
    texts = make_texts("query", options.texts // 2) + make_texts("mixed", options.texts // 2)
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=server.server.url, timeout=options.answer_limit, headers=headers) as http:
        expected = [vectors_of(await http.post("/v1/embeddings", content=body_of([text])))[0] for text in texts]
        soak = Soak(
            process=server.process,
            http=http,
            texts=texts,
            expected=np.stack(expected),
        )
        before = await metrics(soak)
        end = time.monotonic() + options.seconds
        await asyncio.gather(
            *(repeat(client, i, soak, end) for client, number in CLIENTS for i in range(number)),
        )
        gauges = await left_over(soak)
        after = await metrics(soak)
        return summarise(soak, gauges, {name: value - before.get(name, 0.0) for name, value in after.items()})


def server_of(options: argparse.Namespace) -> Server:
    """Return how `cenote serve` is run here."""
    port = free_port()
    command = [sys.executable, "-m", "cenote", "serve", str(options.model), "--name", "soak", "--port", str(port)]
    command += ["--threads", str(options.threads), "--max-body-bytes", str(MIB), "--log-level", "error"]
    return Server(command=command, port=port)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder, of a dense embedding")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--texts", type=int, default=2048, help="different texts")
    parser.add_argument("--limit", type=float, default=32.0, help="largest growth in MiB")
    parser.add_argument("--answer-limit", type=float, default=300.0, help="seconds after which an answer is lost")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def soak_server(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Run everything; return the figures, and whether all is well."""
    with running(server_of(options)) as server:
        outcome = asyncio.run(run(server, options))
        outcome["exit_code"] = server.stop()
    is_well = not outcome["faults"] and not any(outcome["left_over"].values()) and outcome["exit_code"] == 0
    return outcome, is_well and outcome["growth_mib"] <= options.limit


def main() -> int:
    options = parse_arguments()
    outcome, is_well = soak_server(options)
    facts = {"model": options.model.name, "seconds": options.seconds, "threads": options.threads}
    result = {"benchmark": "soak_server", **environment(), **facts, "limit_mib": options.limit, **outcome}
    print(
        f"{sum(outcome['counts'].values()):,} events in {options.seconds:.0f} s: {outcome['faults']} faults", end=", "
    )
    print(f"memory grew by {outcome['growth_mib']} MiB, queries p99 {outcome['ms']['query']['p99']} ms", end=" ")
    print(f"and {outcome['query_steps']['p99']} steps")
    print(f"written to {write_result(f'soak-server-{options.model.name}', result)}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

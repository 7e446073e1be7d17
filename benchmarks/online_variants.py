"""BGE-M3's shape, dense and sparse, under concurrent load: the sync-free runner against what it replaces.

Requests go straight to `AsyncEngine`, so that HTTP is not measured. Variants take turns, several rounds each.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np

from bge_m3_shape import VOCAB_SIZE, write_checkpoint
from cenote import AsyncEngine
from report import REPOSITORY, environment, medians, write_result
from sync_variants import VARIANTS

FOLDER = REPOSITORY / "models"


def make_requests(num_requests: int, num_tokens: int) -> list[list[int]]:
    """Return token ids of texts of about `num_tokens`, with the special tokens around them."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(num_tokens // 2, num_tokens * 3 // 2, num_requests)
    return [[0, *rng.integers(4, VOCAB_SIZE, length).tolist(), 2] for length in lengths]


async def run_load(engine: AsyncEngine, texts: list[list[int]], num_clients: int, seconds: float) -> dict[str, float]:
    """Let `num_clients` ask one after another for `seconds`; return throughput and latencies."""
    latencies: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        turn = number
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            await engine.encode([texts[turn % len(texts)]], outputs=("dense", "sparse"))
            latencies.append(time.perf_counter() - start)
            turn += num_clients

    started = time.perf_counter()
    await asyncio.gather(*[client(number) for number in range(num_clients)])
    elapsed = time.perf_counter() - started
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    return {"requests_per_second": len(latencies) / elapsed, "p50_ms": float(p50), "p99_ms": float(p99)}


async def compare(options: argparse.Namespace) -> dict[str, Any]:
    folder = write_checkpoint(
        FOLDER / f"bge-m3-shape-{options.layers}x{options.hidden}", options.layers, options.hidden
    )
    engine = AsyncEngine(str(folder), verify=False)
    texts = make_requests(256, options.tokens)
    lane = engine._core.lane
    runners = {name: build(lane.runner) for name, build in VARIANTS.items()}
    rounds: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for num_clients in options.clients:
            for name, runner in runners.items():
                lane.runner = runner
                measured = await run_load(engine, texts, num_clients, options.seconds)
                rounds.setdefault(f"{num_clients} clients, {name}", []).append(measured)
    of_rounds = {name: medians(measured) for name, measured in rounds.items()}
    device = engine.info.device
    engine.close()
    note = "On a CPU nothing of this waits for a device: the figures are recorded, they compare nothing."
    return {"device": device, "note": note if device == "cpu" else "", "medians": of_rounds, "rounds": rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=64, help="mean length of a text")
    parser.add_argument("--clients", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--seconds", type=float, default=15.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = {**environment(), "options": vars(options), **asyncio.run(compare(options))}
    for name, figures in result["medians"].items():
        print(f"{name:45s} " + "  ".join(f"{key} {value:9.2f}" for key, value in figures.items()))
    path: Path = write_result("online_variants", result)
    print(f"written to {path}")


if __name__ == "__main__":
    main()

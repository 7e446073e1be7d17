"""How much of the engine's offline speed is left through the server: many clients, one short text in each request.

Starts `cenote serve` on a free loopback port, sends a bounded load, and measures the same texts in process before and
after it. The load generator shares the cores with the server, so its own CPU share is part of the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from cenote import Engine
from cenote.bench.corpora import CORPORA, make_texts
from cenote.bench.load import Load, LoadResult, run_load
from report import DEFAULT_MODEL, environment, write_result
from server_process import HOST, Server, free_port, running

GOAL = 0.65


def offline_tokens_per_second(options: argparse.Namespace, texts: list[str]) -> tuple[float, list[int]]:
    """Return the engine's median speed on `texts` in this process, and the tokens of each text."""
    seconds = []
    with Engine(str(options.model), device="cpu", dtype="float32", threads=options.threads) as engine:
        num_tokens = engine.embed(texts).num_tokens
        for _ in range(options.rounds):
            start = time.perf_counter()
            engine.embed(texts)
            seconds.append(time.perf_counter() - start)
    return sum(num_tokens) / statistics.median(seconds), num_tokens


def server_of(options: argparse.Namespace) -> Server:
    """Return how `cenote serve` is run here."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("cenote")), "serve", str(options.model)]
    command += ["--host", HOST, "--port", str(port)]
    own = {"CENOTE_THREADS": str(options.threads), "CENOTE_DTYPE": "float32", "CENOTE_DEVICE": "cpu"}
    return Server(command=command, port=port, environment=own)


def online(options: argparse.Namespace, texts: list[str]) -> tuple[LoadResult, float]:
    """Return what the clients measured, and the seconds that the server needed to start."""
    shared = {"model": options.model.name, "encoding_format": options.encoding}
    bodies = [json.dumps({**shared, "input": text}).encode() for text in texts]
    with running(server_of(options)) as server:
        load = Load(
            host=HOST,
            port=server.server.port,
            path="/v1/embeddings",
            bodies=bodies,
            num_clients=options.clients,
            seconds=options.seconds,
            warmup_seconds=2.0,
        )
        return run_load(load), server.ready_seconds


def summarise(load: LoadResult, num_tokens: list[int]) -> dict[str, Any]:
    return {
        "requests_per_second": round(load.requests_per_second, 1),
        "tokens_per_second": round(sum(num_tokens[index] for index in load.answered) / load.seconds),
        "p50_ms": round(load.percentile(50) * 1000, 1),
        "p99_ms": round(load.percentile(99) * 1000, 1),
        "requests": len(load.answered),
        "failed": load.num_failed,
        "first_failure": load.first_failure,
        "generator_cpu_share_of_one_core": round(load.cpu_seconds / load.seconds, 3),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder")
    parser.add_argument("--corpus", default="query", choices=list(CORPORA))
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the measured time")
    parser.add_argument("--encoding", default="base64", choices=["base64", "float"], help="encoding_format")
    parser.add_argument("--rounds", type=int, default=3, help="offline rounds before and after the load")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    result = {"benchmark": "online", **environment(), "model": options.model.name, "dtype": "float32"}
    result |= {"threads": options.threads, "clients": options.clients, "seconds": options.seconds}
    result |= {"corpus": options.corpus, "encoding_format": options.encoding}
    texts = make_texts(options.corpus, options.texts)
    before, num_tokens = offline_tokens_per_second(options, texts)
    load, result["ready_seconds"] = online(options, texts)
    after, _ = offline_tokens_per_second(options, texts)
    row = summarise(load, num_tokens)
    row["share_of_offline"] = round(row["tokens_per_second"] / statistics.mean((before, after)), 3)
    result |= {"offline_tokens_per_second": [round(before), round(after)], "online": row, "goal_share": GOAL}
    print(f"{options.clients} clients: {row['requests_per_second']} requests/s, p50 {row['p50_ms']} ms,", end=" ")
    print(f"p99 {row['p99_ms']} ms, {row['failed']} failed; {row['tokens_per_second']:,} tokens/s =", end=" ")
    print(f"{row['share_of_offline']:.0%} of offline (goal {GOAL:.0%});", end=" ")
    print(f"the generator used {row['generator_cpu_share_of_one_core']:.0%} of one core")
    print(f"written to {write_result(f'online-{options.model.name}', result)}")
    return 1 if load.num_failed or not load.answered else 0


if __name__ == "__main__":
    sys.exit(main())

"""Cenote against sentence-transformers on the same texts, threads and weights, in one process.

The rounds are interleaved, so that a busy machine slows both; what counts is the ratio. The cosine of the two results
is checked in the same run, since speed with wrong numbers is worth nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer

from cenote import Engine
from cenote.bench.corpora import CORPORA, make_texts
from report import DEFAULT_MODEL, environment, write_result

ST_BATCH_SIZE = 32
SMALLEST_COSINE = 0.99999

Array = npt.NDArray[np.float32]


@dataclass
class Contestant:
    """One way to embed, with the seconds of each of its rounds."""

    name: str
    embed: Callable[[list[str]], Array]
    seconds: list[float] = field(default_factory=list)

    def time_round(self, texts: list[str]) -> Array:
        start = time.perf_counter()
        result = self.embed(texts)
        self.seconds.append(time.perf_counter() - start)
        return result

    def summary(self, num_tokens: int) -> dict[str, Any]:
        return {
            "tokens_per_second": round(num_tokens / statistics.median(self.seconds)),
            "median_seconds": round(statistics.median(self.seconds), 4),
            "seconds": [round(value, 4) for value in self.seconds],
        }


def compare(contestants: tuple[Contestant, Contestant], texts: list[str], rounds: int) -> dict[str, Any]:
    """Warm both up, run interleaved rounds, and return times, cosine and the ratio first / second in speed."""
    first, second = contestants
    warmup = texts[:: max(1, len(texts) // 64)]
    for contestant in contestants:
        contestant.embed(warmup)
        contestant.seconds.clear()
    for number in range(rounds):
        ordered = contestants if number % 2 == 0 else contestants[::-1]
        results = {contestant.name: contestant.time_round(texts) for contestant in ordered}
    ratios = [slow / fast for fast, slow in zip(first.seconds, second.seconds, strict=True)]
    return {
        "smallest_cosine": float(_cosines(results[first.name], results[second.name]).min()),
        "ratio": round(statistics.median(second.seconds) / statistics.median(first.seconds), 3),
        "ratio_of_each_round": [round(ratio, 3) for ratio in ratios],
    }


def _cosines(left: Array, right: Array) -> npt.NDArray[np.float64]:
    a, b = (np.asarray(x, dtype=np.float64) for x in (left, right))
    cosines: npt.NDArray[np.float64] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return cosines


def run_corpus(engine: Engine, peer: SentenceTransformer, corpus: str, options: argparse.Namespace) -> dict[str, Any]:
    texts = make_texts(corpus, options.texts)
    num_tokens = sum(engine.embed(texts).num_tokens)
    contestants = (
        Contestant("cenote", engine.embed),
        Contestant("sentence-transformers", lambda batch: peer.encode(batch, batch_size=ST_BATCH_SIZE)),
    )
    comparison = compare(contestants, texts, options.rounds)
    speeds = {contestant.name: contestant.summary(num_tokens) for contestant in contestants}
    return {"texts": len(texts), "tokens": num_tokens, **comparison, **speeds}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder")
    parser.add_argument("--corpora", nargs="+", default=["mixed", "short", "long"], choices=list(CORPORA))
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    result = {"benchmark": "offline", **environment(), "model": options.model.name, "dtype": "float32"}
    result |= {"threads": options.threads, "rounds": options.rounds, "batch_size_of_peer": ST_BATCH_SIZE}
    torch.set_num_threads(options.threads)
    peer = SentenceTransformer(str(options.model), device="cpu", local_files_only=True)
    with Engine(str(options.model), device="cpu", dtype="float32", threads=options.threads) as engine:
        result["decisions"] = {decision.what: decision.value for decision in engine.info.decisions}
        result["corpora"] = {name: run_corpus(engine, peer, name, options) for name in options.corpora}
    for name, row in result["corpora"].items():
        ours, theirs = row["cenote"]["tokens_per_second"], row["sentence-transformers"]["tokens_per_second"]
        print(f"{name:6} {ours:7,} tokens/s  sentence-transformers {theirs:7,}  ratio {row['ratio']:.2f}", end="  ")
        print(f"smallest cosine {row['smallest_cosine']:.7f}")
    print(f"written to {write_result(f'offline-{options.model.name}', result)}")
    wrong = [name for name, row in result["corpora"].items() if row["smallest_cosine"] < SMALLEST_COSINE]
    if wrong:
        print(f"the numbers differ on: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

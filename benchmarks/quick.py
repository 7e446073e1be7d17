"""A guard against getting slower, in under two minutes: ratios against sentence-transformers in the same run.

Few texts of mixed length at once, and single texts one after the other. It fails where the numbers differ, never where
a ratio is low: shared machines are too uneven for that.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from cenote import Engine
from cenote.bench.corpora import make_texts
from offline import SMALLEST_COSINE, ST_BATCH_SIZE, Array, Contestant, compare
from report import DEFAULT_MODEL


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder")
    parser.add_argument("--texts", type=int, default=48)
    parser.add_argument("--singles", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    peer = SentenceTransformer(str(options.model), device="cpu", local_files_only=True)
    with Engine(str(options.model), device="cpu", dtype="float32", threads=options.threads) as engine:

        def theirs(texts: list[str]) -> Array:
            vectors: Array = peer.encode(texts, batch_size=ST_BATCH_SIZE)
            return vectors

        def ours_singly(texts: list[str]) -> Array:
            return np.concatenate([engine.embed([text]) for text in texts])

        def theirs_singly(texts: list[str]) -> Array:
            return np.concatenate([theirs([text]) for text in texts])

        cases = {
            "mixed texts": (engine.embed, theirs, make_texts("mixed", options.texts)),
            "single texts": (ours_singly, theirs_singly, make_texts("query", options.singles)),
        }
        rows = {
            name: compare((Contestant("cenote", ours), Contestant("peer", other)), texts, options.rounds)
            for name, (ours, other, texts) in cases.items()
        }
    for name, row in rows.items():
        ratios = row["ratio_of_each_round"]
        print(f"{name:13} {row['ratio']:.2f} times the speed of sentence-transformers", end=" ")
        print(f"(rounds {min(ratios):.2f} to {max(ratios):.2f}); smallest cosine {row['smallest_cosine']:.7f}")
    return 1 if min(row["smallest_cosine"] for row in rows.values()) < SMALLEST_COSINE else 0


if __name__ == "__main__":
    sys.exit(main())

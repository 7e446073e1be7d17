"""Ten thousand steps of random shapes: the memory of the process must stay flat.

The first fifth is left out, since allocators and caches fill up there. Ends with exit code 1 where the rest grew by
more than the limit, and stops early, with a note in the result, when its time is over.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cenote import Engine
from report import DEFAULT_MODEL, environment, write_result

LONGEST_TEXT = 32
MOST_TEXTS = 3
TOKEN_IDS = (5, 190)
"""Ids that every vocabulary has; which they are does not matter to the memory."""
SAMPLES = 50
MIB = 2**20


def resident_mib() -> float:
    """Return the memory that the process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def run(engine: Engine, num_steps: int, max_seconds: float) -> dict[str, Any]:
    """Run the steps, one request each, and return how the memory went."""
    random = np.random.default_rng(0)
    samples: list[float] = []
    started = time.monotonic()
    step = 0
    while step < num_steps and time.monotonic() - started < max_seconds:
        lengths = random.integers(1, LONGEST_TEXT + 1, random.integers(1, MOST_TEXTS + 1))
        engine.embed([random.integers(*TOKEN_IDS, length).tolist() for length in lengths])
        step += 1
        if step % max(1, num_steps // SAMPLES) == 0:
            samples.append(round(resident_mib(), 1))
    settled = samples[len(samples) // 5 :]
    return {
        "steps": step,
        "complete": step == num_steps,
        "seconds": round(time.monotonic() - started, 1),
        "resident_mib": samples,
        "growth_mib": round(max(settled, default=0.0) - min(settled[:1], default=0.0), 1),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--max-seconds", type=float, default=300.0)
    parser.add_argument("--limit", type=float, default=16.0, help="largest growth in MiB")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    with Engine(str(options.model), device="cpu", dtype="float32", threads=options.threads) as engine:
        outcome = run(engine, options.steps, options.max_seconds)
    result = {"benchmark": "soak", **environment(), "model": options.model.name, "limit_mib": options.limit, **outcome}
    print(f"{outcome['steps']:,} steps in {outcome['seconds']} s, memory grew by {outcome['growth_mib']} MiB")
    print(f"written to {write_result(f'soak-{options.model.name}', result)}")
    return 1 if outcome["growth_mib"] > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())

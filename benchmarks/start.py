"""How long a fresh process takes to its first vector, and what memory it takes, against a bare transformers script.

The scripts run in turn, each in a process of its own, so that a busy machine slows both; what counts is the ratio of
their medians. Cenote compares the packed run with transformers and measures its steps before the first request; both
are part of its time, and a third contestant, without the comparison, shows what that costs. CPU time is noted, too: it
says more where other work shares the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import DEFAULT_MODEL, environment, write_result

IMPORT_MARK_SECONDS = 0.3
FIRST_VECTOR_MARK = 1.2
MEMORY_MARK_MIB = 150
LARGEST_DIFFERENCE = 1e-5

IMPORT = "import cenote; vector = []"
BARE = """
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModel.from_pretrained({model!r}).eval()
with torch.inference_mode():
    hidden = model(**tokenizer({text!r}, return_tensors="pt")).last_hidden_state
    vector = torch.nn.functional.normalize(hidden.mean(1))[0].tolist()
"""
CENOTE = """
from cenote import Engine
engine = Engine({model!r}, device="cpu", dtype="float32"{options})
vector = engine.embed([{text!r}])[0].tolist()
"""
REPORT = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
said = {"peak_mib": used.ru_maxrss / 1024, "cpu_seconds": used.ru_utime + used.ru_stime, "vector": vector}
print(json.dumps(said), flush=True)
import os
os._exit(0)
"""
TEXT = "The water is clear, and one can see the bottom."


@dataclass
class Contestant:
    """A script, and the seconds, the CPU seconds and the peak memory in MiB of each of its processes."""

    name: str
    script: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    vector: list[float] = field(default_factory=list)

    def run(self, threads: int) -> None:
        own = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        command = [sys.executable, "-c", self.script + REPORT]
        start = time.perf_counter()
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=True)
        self.seconds.append(time.perf_counter() - start)
        said = json.loads(done.stdout.splitlines()[-1])
        self.cpu_seconds.append(said["cpu_seconds"])
        self.peaks.append(said["peak_mib"])
        self.vector = said["vector"]

    def summary(self) -> dict[str, Any]:
        return {
            "median_seconds": round(statistics.median(self.seconds), 3),
            "median_cpu_seconds": round(statistics.median(self.cpu_seconds), 3),
            "median_peak_mib": round(statistics.median(self.peaks), 1),
            "seconds": [round(value, 3) for value in self.seconds],
            "cpu_seconds": [round(value, 3) for value in self.cpu_seconds],
            "peak_mib": [round(value, 1) for value in self.peaks],
        }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="folder of a mean-pooled model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def contestants_of(model: Path) -> dict[str, Contestant]:
    values = {"model": str(model), "text": TEXT}
    scripts = {
        "import": IMPORT,
        "transformers": BARE.format(**values),
        "cenote": CENOTE.format(options="", **values),
        "cenote without verify": CENOTE.format(options=", verify=False", **values),
    }
    return {name: Contestant(name, script) for name, script in scripts.items()}


def main() -> int:
    options = parse_arguments()
    result: dict[str, Any] = {"benchmark": "start", **environment(), "model": options.model.name}
    contestants = contestants_of(options.model)
    for number in range(options.rounds):
        for contestant in list(contestants.values())[:: 1 if number % 2 == 0 else -1]:
            contestant.run(options.threads)
    rows = {name: contestant.summary() for name, contestant in contestants.items()}
    bare, ours = contestants["transformers"], contestants["cenote"]
    difference = max(abs(a - b) for a, b in zip(bare.vector, ours.vector, strict=True))
    result |= {"threads": options.threads, "largest_difference": difference, "processes": rows}
    result["ratio"] = round(rows["cenote"]["median_seconds"] / rows["transformers"]["median_seconds"], 3)
    result["cpu_ratio"] = round(rows["cenote"]["median_cpu_seconds"] / rows["transformers"]["median_cpu_seconds"], 3)
    result["more_mib"] = round(rows["cenote"]["median_peak_mib"] - rows["transformers"]["median_peak_mib"], 1)
    result["marks"] = {"import": IMPORT_MARK_SECONDS, "ratio": FIRST_VECTOR_MARK, "more_mib": MEMORY_MARK_MIB}
    for name, row in rows.items():
        print(f"{name:22} {row['median_seconds']:7.2f} s, {row['median_cpu_seconds']:.2f} s of CPU,", end=" ")
        print(f"{row['median_peak_mib']:.0f} MiB at most")
    print(f"first vector: {result['ratio']:.2f} times the bare script (mark {FIRST_VECTOR_MARK}), ", end="")
    print(f"{result['cpu_ratio']:.2f} times its CPU time, ", end="")
    print(f"{result['more_mib']:+.0f} MiB (mark {MEMORY_MARK_MIB})")
    print(f"written to {write_result(f'start-{options.model.name}', result)}")
    return 0 if difference <= LARGEST_DIFFERENCE else 1


if __name__ == "__main__":
    sys.exit(main())

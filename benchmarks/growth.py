"""Does a text cost the same however many there are? Time and memory of one call with 1,000, 10,000 and 100,000 texts.

Each number of texts has a process of its own, in rounds, so that a busy moment of the machine hits all alike, and
medians are taken. Memory is the peak of the call over what the process had before it, without the array that is given
back. The default model is a small random one, so that the engine's own work around the model counts for much, and a
round takes a minute; `--model` takes a real one. Needs Linux's `/proc`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cenote.bench.corpora import make_texts
from cenote.bench.plot import Panel, Plot, write_plot
from report import DEFAULT_MODEL, RESULTS, environment, medians, write_result

MARK = 0.15
MOST_CALLS = 5
WARMUP_TEXTS = 1000


def write_small_model(folder: Path) -> Path:
    """Write a random BERT of 2 layers and 64 values with the tokenizer of the default model."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    BertModel(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (DEFAULT_MODEL / name).exists():
            shutil.copy(DEFAULT_MODEL / name, folder)
    return folder


def measure(model: str, num_texts: int, calls: int, threads: int) -> dict[str, Any]:
    """Return time and memory of calls with `num_texts` texts in this process."""
    from cenote import Engine

    texts = make_texts("short", num_texts)
    with Engine(model, device="cpu", dtype="float32", pooling="mean", threads=threads) as engine:
        engine.embed(make_texts("short", WARMUP_TEXTS, seed=1))
        wall, cpu = [], []
        before = memory_mib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # starts the peak anew
        for _ in range(calls):
            start = time.perf_counter(), time.process_time()
            vectors = engine.embed(texts)
            wall.append(time.perf_counter() - start[0])
            cpu.append(time.process_time() - start[1])
    array = vectors.nbytes / 2**20
    return {
        "texts": num_texts,
        "tokens": sum(vectors.num_tokens),
        "calls": calls,
        "microseconds_per_text": round(statistics.median(wall) / num_texts * 1e6, 2),
        "cpu_microseconds_per_text": round(statistics.median(cpu) / num_texts * 1e6, 2),
        "array_mib": round(array, 1),
        "more_mib": round(memory_mib("VmHWM") - before - array, 1),
    }


def memory_mib(name: str) -> float:
    """Return a line of `/proc/self/status`: `VmRSS` is what there is now, `VmHWM` the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def measured_apart(model: str, num_texts: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run `measure` in a process of its own."""
    calls = max(1, min(MOST_CALLS, max(options.sizes) // num_texts // 4))
    command = [sys.executable, __file__, "--model", model, "--threads", str(options.threads)]
    command += ["--sizes", str(num_texts), "--calls", str(calls)]
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=own, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(row), flush=True)
    return row


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model folder; by default a small random one")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calls", type=int, help="measure one size in this process, by so many calls")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.calls:
        print(json.dumps(measure(options.model, options.sizes[0], options.calls, options.threads)))
        return 0
    name = Path(options.model).name if options.model else "small"
    result: dict[str, Any] = {"benchmark": "growth", **environment(), "model": name, "threads": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or str(write_small_model(Path(folder)))
        rounds = [[measured_apart(model, size, options) for size in options.sizes] for _ in range(options.rounds)]
    rows = [medians(of_one_size) for of_one_size in zip(*rounds, strict=True)]
    for key in ("microseconds_per_text", "cpu_microseconds_per_text"):
        values = [row[key] for row in rows]
        result[f"spread_of_{key}"] = round(max(values) / min(values) - 1, 3)
        print(f"{key} differ by {result[f'spread_of_{key}']:.0%} (mark {MARK:.0%})")
    result |= {"mark": MARK, "sizes": rows, "rounds": rounds}
    draw(RESULTS / f"growth-{name}.svg", name, rows)
    print(f"written to {write_result(f'growth-{name}', result)}")
    return 0


def draw(path: Path, name: str, rows: list[dict[str, Any]]) -> None:
    def line(key: str) -> list[float]:
        return [row[key] for row in rows]

    cost = {"time": line("microseconds_per_text"), "CPU time": line("cpu_microseconds_per_text")}
    memory = {"array given back": line("array_mib"), "beside it, at most": line("more_mib")}
    panels = (Panel(y="microseconds for each text", lines=cost), Panel(y="MiB", lines=memory))
    write_plot(path, Plot(title=f"One call, {name} model", x="texts", xs=line("texts"), panels=panels, is_log=True))


if __name__ == "__main__":
    sys.exit(main())

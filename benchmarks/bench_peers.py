"""Cenote against what people would pick instead: the same texts, threads and machine, in one run.

Offline every contestant is a process of its own that waits for its turn; the rounds go around, so that a busy moment
of the machine hits all alike. Online each server in turn gets the same load. Every vector is compared with
sentence-transformers in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cenote.bench.corpora import make_texts
from peers.environments import PEERS, REPOSITORY, ROOT, install
from peers.online import compare_online
from peers.tables import plot, print_tables
from report import environment, write_result

OFFLINE = {
    "cenote": None,
    "cenote int8": None,
    "sentence-transformers": "sentence-transformers",
    "infinity": "infinity",
    "fastembed": "fastembed",
    "onnx runtime": "onnx",
    "onnx runtime int8": "onnx",
    "openvino int8": "onnx",
    "vllm": "vllm",
}
"""Each contestant and the environment that it runs in; None is the repository's own."""
REFERENCE = "sentence-transformers"
ONNX_MODELS = frozenset({"fastembed", "onnx runtime", "onnx runtime int8", "openvino int8"})


class ContestantEndedError(SystemExit):
    """A contestant's process is gone."""


class Worker:
    """A contestant's process."""

    def __init__(self, name: str, options: argparse.Namespace, exports: Path) -> None:
        environment_name = OFFLINE[name]
        python = Path(sys.executable) if environment_name is None else install(environment_name)
        command = [str(python), str(Path(__file__).parent / "peers" / "worker.py"), name]
        command += [str(options.model), str(exports), str(options.threads)]
        self.name = name
        self.seconds: list[float] = []
        self._log = (exports.parent / f"{name.replace(' ', '-')}.log").open("w")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(options),
        )

    def wait_until_ready(self) -> None:
        self._answer()

    def embed(self, path: Path) -> float:
        """Embed the texts in `path` and return the seconds; the vectors lie beside it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # some peers have processes of their own
        self._process.communicate()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContestantEndedError(f"{self.name} ended; its last words are in {self._log.name}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(options: argparse.Namespace) -> dict[str, str]:
    own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return os.environ | own | {"OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "true"}


def export(model: Path) -> Path:
    """Export `model` for the peers that need it, once, and return the folder."""
    exports = ROOT / "exports" / model.name
    if not (exports / "openvino-int8.xml").exists():
        texts = exports.with_suffix(".calibration.json")
        texts.parent.mkdir(parents=True, exist_ok=True)
        texts.write_text(json.dumps(make_texts("mixed", 128, seed=99)), encoding="utf-8")
        script = Path(__file__).parent / "peers" / "export.py"
        subprocess.run([str(install("onnx")), str(script), str(model), str(exports), str(texts)], check=True)
    return exports


def compare_offline(options: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Return, for each corpus and contestant, tokens a second, its rounds, and the cosine to the reference."""
    exports = export(options.model) if ONNX_MODELS & set(names) else ROOT / "exports" / options.model.name
    exports.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = []
        for name in names:
            worker = Worker(name, options, exports)
            stack.callback(worker.close)
            worker.wait_until_ready()
            workers.append(worker)
        return {corpus: _run_corpus(corpus, workers, folder, options) for corpus in options.corpora}


def _run_corpus(corpus: str, workers: list[Worker], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    texts = make_texts(corpus, options.texts)
    path = folder / f"{corpus}.json"
    vectors: dict[str, Any] = {}
    path.write_text(json.dumps(texts[:: max(1, len(texts) // 64)]), encoding="utf-8")
    for worker in list(workers):
        try:
            worker.embed(path)
        except ContestantEndedError as ended:
            print(f"left out from here on: {ended}", file=sys.stderr)
            workers.remove(worker)
        worker.seconds = []
    path.write_text(json.dumps(texts), encoding="utf-8")
    for number in range(options.rounds):
        for worker in workers[number % len(workers) :] + workers[: number % len(workers)]:
            worker.seconds.append(worker.embed(path))
            vectors[worker.name] = np.load(path.with_suffix(".npy"))
    num_tokens = _num_tokens(options.model, texts)
    rows = {worker.name: _row(worker, vectors, num_tokens) for worker in workers}
    return {"texts": len(texts), "tokens": num_tokens, "contestants": rows}


def _row(worker: Worker, vectors: dict[str, Any], num_tokens: int) -> dict[str, Any]:
    a, b = (vectors[name].astype(np.float64) for name in (worker.name, REFERENCE))
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return {
        "tokens_per_second": round(num_tokens / statistics.median(worker.seconds)),
        "seconds": [round(seconds, 3) for seconds in worker.seconds],
        "spread": round((max(worker.seconds) - min(worker.seconds)) / statistics.median(worker.seconds), 3),
        "mean_cosine": round(float(cosines.mean()), 6),
        "smallest_cosine": round(float(cosines.min()), 6),
    }


def _num_tokens(model: Path, texts: list[str]) -> int:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"])
    return sum(len(each.ids) for each in tokenizer.encode_batch(texts))


def matrix_multiply_tokens(model: Path, threads: int) -> float:
    """Return the tokens a second that the machine's own matrix multiplies of the model's layers would allow."""
    config = json.loads((model / "config.json").read_text())
    hidden, inner, layers = (config[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    torch.set_num_threads(threads)
    rows = 1024
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
    operands = [(torch.randn(rows, inputs), torch.randn(inputs, outputs)) for inputs, outputs in shapes]
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        for left, right in operands:
            torch.mm(left, right)
        seconds.append(time.perf_counter() - start)
    return rows / (int(layers) * statistics.median(seconds))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=REPOSITORY / "models" / "all-MiniLM-L6-v2", help="model folder")
    parser.add_argument("--contestants", nargs="+", default=list(OFFLINE), choices=list(OFFLINE))
    parser.add_argument("--corpora", nargs="+", default=["short", "mixed", "long", "skewed"])
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 32, 64], help="none: leave the servers out")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement of a server")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    names = [name for name in OFFLINE if name in options.contestants or name == REFERENCE]
    for peer in PEERS:
        if peer in {OFFLINE[name] for name in names}:
            install(peer)
    result: dict[str, Any] = {"benchmark": "peers", **environment(), "model": options.model.name}
    result |= {"threads": options.threads, "rounds": options.rounds}
    result["matrix_multiply_tokens_per_second"] = round(matrix_multiply_tokens(options.model, options.threads))
    result["offline"] = compare_offline(options, names) if options.corpora else {}
    result["online"] = compare_online(options, names) if options.clients else {}
    print_tables(result)
    path = write_result(f"peers-{options.model.name}", result)
    plot(result, path)
    print(f"written to {path}")


if __name__ == "__main__":
    main()

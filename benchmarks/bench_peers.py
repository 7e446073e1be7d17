"""Cenote against what people would pick instead: the same texts, threads and machine, in one run.

Offline every contestant is a process of its own that waits for its turn; the rounds go around, so that a busy moment
of the machine hits all alike. Online all servers are up, and each in turn gets the same load, single texts in rounds.
Every vector is compared with sentence-transformers in float32. A contestant that cannot run a model, or fails, is named
in the result with the reason, and the others go on. Results are written as they come, so that a run that is ended keeps
what it has measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cenote.bench.corpora import CORPORA, make_texts
from peers.contestants import OFFLINE, REFERENCE, ContestantError, Worker, export_all, in_turn, max_tokens
from peers.environments import PEERS, REPOSITORY, install
from peers.online import compare_online
from peers.tables import plot_offline, plot_online, print_offline, print_online
from report import environment, write_result

TABLES = {"offline": print_offline, "online": print_online}
PLOTS = {"offline": plot_offline, "online": plot_online}
SAMPLE_TEXTS = 256
"""Texts of a corpus by which its tokens are judged where their number is chosen."""
WARMUP_TEXTS = 64


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The contestants that are still in, and why others are not; `folder` is for the texts and their vectors."""

    options: argparse.Namespace
    folder: Path
    workers: list[Worker]
    left_out: dict[str, str]

    def enter(self, name: str, stack: ExitStack) -> None:
        """Start a contestant and wait until it is ready."""
        worker = Worker(name, self.options)
        stack.callback(worker.close)
        self.workers.append(worker)
        self.let(worker, Worker.wait_until_ready)

    def let(self, worker: Worker, act: Callable[[Worker], object]) -> None:
        """Let a contestant do something; one that fails is out."""
        try:
            act(worker)
        except ContestantError as error:
            print(f"left out from here on: {error}", file=sys.stderr, flush=True)
            self.left_out[worker.name] = str(error)
            self.workers.remove(worker)
            worker.close()

    def run(self, corpus: str) -> dict[str, Any]:
        """Return the figures of everybody who embeds a corpus to the end."""
        texts = make_texts(corpus, num_texts(corpus, self.options))
        vectors: dict[str, Any] = {}
        path = self.folder / f"{corpus}.json"
        path.write_text(json.dumps(texts[:: max(1, len(texts) // WARMUP_TEXTS)]), encoding="utf-8")
        for worker in list(self.workers):
            worker.seconds = []
            self.let(worker, lambda worker: worker.embed(path))
        path.write_text(json.dumps(texts), encoding="utf-8")

        def measure(worker: Worker) -> None:
            worker.seconds.append(worker.embed(path))
            vectors[worker.name] = np.load(path.with_suffix(".npy"))

        for number in range(self.options.rounds):
            for worker in in_turn(self.workers, number):
                self.let(worker, measure)
        num_tokens = _num_tokens(self.options.model, texts)
        rows = {worker.name: _row(worker, vectors, num_tokens) for worker in self.workers}
        return {"texts": len(texts), "tokens": num_tokens, "contestants": rows}


def compare_offline(
    options: argparse.Namespace, names: list[str], left_out: dict[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each corpus with, for each contestant, tokens a second, its rounds, and the cosine to the reference.

    `left_out` gets why contestants were left out, by their names.
    """
    left_out |= export_all(names, options)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contest = Contest(options=options, folder=folder, workers=[], left_out=left_out)
        for name in names:
            if name not in left_out:
                contest.enter(name, stack)
        for corpus in options.corpora:
            yield corpus, contest.run(corpus)


def num_texts(corpus: str, options: argparse.Namespace) -> int:
    """Return how many texts of a corpus have about as many tokens as `options.texts` of the mixed one."""
    mixed, own = (_num_tokens(options.model, make_texts(name, SAMPLE_TEXTS)) for name in ("mixed", corpus))
    return max(1, round(mixed / own * int(options.texts)))


def _row(worker: Worker, vectors: dict[str, Any], num_tokens: int) -> dict[str, Any]:
    cosines = _cosines(vectors[worker.name], vectors[REFERENCE]) if REFERENCE in vectors else None
    return {
        "tokens_per_second": round(num_tokens / statistics.median(worker.seconds)),
        "seconds": [round(seconds, 3) for seconds in worker.seconds],
        "spread": round((max(worker.seconds) - min(worker.seconds)) / statistics.median(worker.seconds), 3),
        "mean_cosine": None if cosines is None else round(float(cosines.mean()), 6),
        "smallest_cosine": None if cosines is None else round(float(cosines.min()), 6),
    }


def _cosines(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the cosine of each pair of rows."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    cosines: npt.NDArray[np.float64] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return cosines


def _num_tokens(model: Path, texts: list[str]) -> int:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens(model))
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
    parser.add_argument(
        "--corpora",
        nargs="*",
        choices=list(CORPORA),
        default=["short", "mixed", "long", "skewed"],
        help="none: leave them out",
    )
    parser.add_argument(
        "--texts",
        type=int,
        default=512,
        help="texts of the mixed corpus; of the others so many that each has about as many tokens",
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each corpus, and of single texts at the servers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 32, 64], help="none: leave the servers out")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement of a server")
    parser.add_argument(
        "--export-seconds", type=float, default=900.0, help="time for each export; the peers that need it are out then"
    )
    return parser.parse_args()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the contestants live in sessions of their own
    options = parse_arguments()
    names = [name for name in OFFLINE if name in options.contestants or name == REFERENCE]
    for peer in PEERS:
        if peer in {OFFLINE[name] for name in names}:
            install(peer)
    facts: dict[str, Any] = {**environment(), "model": options.model.name, "threads": options.threads}
    if options.corpora:
        limit = round(matrix_multiply_tokens(options.model, options.threads))
        offline = facts | {"rounds": options.rounds, "matrix_multiply_tokens_per_second": limit, "left_out": {}}
        record("offline", offline, "corpora", compare_offline(options, names, offline["left_out"]))
    if options.clients:
        online = facts | {"rounds": options.rounds, "seconds": options.seconds, "left_out": {}}
        record("online", online, "servers", compare_online(options, names, online["left_out"]))


def record(kind: str, result: dict[str, Any], key: str, figures: Iterator[tuple[str, dict[str, Any]]]) -> None:
    """Write the result anew with each part of it that comes, and print and draw the whole."""
    result |= {"benchmark": f"peers-{kind}", key: {}}
    for name, each in figures:
        result[key][name] = each
        path = write_result(f"peers-{kind}-{result['model']}", result)
        print(f"{name} is written to {path}", file=sys.stderr, flush=True)
    path = write_result(f"peers-{kind}-{result['model']}", result)  # who was left out last is known only now
    TABLES[kind](result)
    if result[key]:
        PLOTS[kind](result, path.with_suffix(".svg"))


if __name__ == "__main__":
    main()

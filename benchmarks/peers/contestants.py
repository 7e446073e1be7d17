"""The contestants of the offline comparison: each in a process of its own, which may fail without ending the run."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from cenote.bench.corpora import make_texts
from peers.environments import ROOT, install

T = TypeVar("T")

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
NEEDED_EXPORTS = {
    "fastembed": ("model.onnx",),
    "onnx runtime": ("model.onnx",),
    "onnx runtime int8": ("model.onnx", "model-int8.onnx"),
    "openvino int8": ("model.onnx", "openvino-int8.xml"),
}
"""What is exported for a contestant, in this order."""
ANSWER_LIMIT_SECONDS = 900.0
"""Of a start, or of one round."""
WORKER = Path(__file__).with_name("worker.py")
EXPORT = Path(__file__).with_name("export.py")


class ContestantError(Exception):
    """A contestant cannot go on; the message says why."""


def in_turn(contestants: list[T], number: int) -> list[T]:
    """Return the contestants in the order of a round: each round begins with another one."""
    first = number % max(1, len(contestants))
    return contestants[first:] + contestants[:first]


def last_words(log: Path) -> str:
    """Return the first error that a log names, which later ones follow from, or else its last line."""
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    error = re.search(r"(?:\w+\.)*\w*(?:Error|Exception): .+(?:\n[ \t]+.+)*", text)  # and its indented lines
    found = error[0] if error else text.rpartition("\n")[2]
    return " ".join(found.split())[:300] or "it said nothing"


def max_tokens(model: Path) -> int:
    """Return the number of tokens after which the checkpoint cuts a text."""
    return int(json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"])


def logs(model: Path) -> Path:
    """Return the folder of the contestants' logs."""
    folder = ROOT / "logs" / model.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Worker:
    """A contestant's process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        environment = OFFLINE[name]
        python = Path(sys.executable) if environment is None else install(environment)
        command = [str(python), str(WORKER), name, str(options.model), str(exports(options.model))]
        self.name = name
        self.seconds: list[float] = []
        self._log = (logs(options.model) / f"{name.replace(' ', '-')}.log").open("w")
        self._process = subprocess.Popen(
            [*command, str(options.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | _environment(options),
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Raise `ContestantError` where it never is."""
        self._answer()

    def embed(self, path: Path) -> float:
        """Embed the texts in `path` and return the seconds; the vectors lie beside it. Raises `ContestantError`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its answer says it, too
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> None:
        """End it; once more does nothing."""
        if self._log.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # some peers have processes of their own
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_LIMIT_SECONDS)[0]:
            raise ContestantError(f"{self.name} gave no answer within {ANSWER_LIMIT_SECONDS:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code, log = self._process.wait(), Path(self._log.name)
            raise ContestantError(f"{self.name} ended with exit code {code}: {last_words(log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _environment(options: argparse.Namespace) -> dict[str, str]:
    own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return own | {"OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "true"}


def exports(model: Path) -> Path:
    """Return the folder of what is exported from `model`."""
    return ROOT / "exports" / model.name


def export_all(names: list[str], options: argparse.Namespace) -> dict[str, str]:
    """Export what contestants need, unless it is there; return why it could not be, by the names that it concerns."""
    failed: dict[str, str] = {}
    for file in dict.fromkeys(file for name in names for file in NEEDED_EXPORTS.get(name, ())):
        try:
            _export(file, options)
        except ContestantError as error:
            failed[file] = str(error)
    reasons = {name: [failed[file] for file in NEEDED_EXPORTS.get(name, ()) if file in failed] for name in names}
    return {name: found[0] for name, found in reasons.items() if found}


def _export(file: str, options: argparse.Namespace) -> None:
    """Raise `ContestantError` where it fails, or takes more than `export_seconds`."""
    folder, log = exports(options.model), logs(options.model) / f"export-{file}.log"
    if (folder / file).exists():
        return
    print(f"exporting {file} of {options.model.name} ...", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("w") as output, tempfile.TemporaryDirectory(dir=folder) as partial:
            texts = Path(partial) / "calibration.json"
            texts.write_text(json.dumps(make_texts("mixed", 128, seed=99)), encoding="utf-8")
            command = [str(install("onnx")), str(EXPORT), file, str(options.model), str(folder), str(texts)]
            subprocess.run(command, stdout=output, stderr=output, timeout=options.export_seconds, check=True)
    except subprocess.TimeoutExpired:
        raise ContestantError(f"the export of {file} took more than {options.export_seconds:.0f} s") from None
    except subprocess.CalledProcessError as error:
        reason = f"ended with exit code {error.returncode}: {last_words(log)}"
        raise ContestantError(f"the export of {file} {reason}") from None

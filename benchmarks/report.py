"""What a result file needs to be believed: the command, the versions, the machine and every single round."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
DEFAULT_MODEL = REPOSITORY / "models" / "all-MiniLM-L6-v2"
PACKAGES = ("cenote", "torch", "transformers", "tokenizers", "sentence-transformers", "numpy")


def environment() -> dict[str, Any]:
    """Return the facts about this run that a reader needs to judge its figures."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *sys.argv]),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_average_at_start": [round(value, 2) for value in os.getloadavg()],
    }


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return one row of figures from those of several rounds."""
    return {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Write `benchmarks/results/<name>.json` and return its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _commit() -> str:
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cpu_model() -> str:
    """Return the processor's name and the vector extensions that decide its matrix-multiply speed."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    text = info.read_text(encoding="utf-8", errors="replace")
    model = next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), "?")
    extensions = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if f" {name}" in text]
    return f"{model} ({', '.join(extensions) or 'no known vector extension'})"

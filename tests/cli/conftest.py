"""The command line as people use it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tiny import add_sentence_transformers_files, tiny_checkpoint

Cenote = Callable[..., subprocess.CompletedProcess[str]]

TIMEOUT_SECONDS = 120


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is served as `tiny`: 64 values, 64 tokens, prompts, L2."""
    folder = tiny_checkpoint("bert", tmp_path_factory.mktemp("models") / "tiny")
    return add_sentence_transformers_files(
        folder, normalize=True, prompts={"query": "the cat: ", "document": "a dog: "}
    )


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """One thread, warnings as errors in our own code, nothing of the caller's options."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CENOTE_")}
    return {**kept, "CENOTE_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


@pytest.fixture(scope="session")
def cenote(environment: dict[str, str]) -> Cenote:
    """`cenote(*arguments, input=None, **variables)`: run it and return what it printed. It never shows a traceback."""

    def run(*arguments: object, input: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:  # noqa: A002
        done = subprocess.run(
            [sys.executable, "-m", "cenote", *map(str, arguments)],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=TIMEOUT_SECONDS,
            env={**environment, **variables},
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run

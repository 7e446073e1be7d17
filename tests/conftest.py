"""Shared fixtures: one compute thread, no hub, tiny checkpoints written once a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import pytest
import torch
from hypothesis import settings

from tiny import CheckpointFactory, Head, tiny_checkpoint

settings.register_profile("cenote", deadline=None, max_examples=50)  # a busy machine is no failure
settings.load_profile("cenote")

collect_ignore = ["clients"]
"""They run in an environment of their own: `make test-clients`."""

NUM_GPU_TESTS = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none; it neither passes nor is skipped."""
    gpu = [] if torch.cuda.is_available() else [item for item in items if item.get_closest_marker("gpu")]
    config.stash[NUM_GPU_TESTS] = len(gpu)
    if gpu:
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if item not in gpu]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if number := config.stash.get(NUM_GPU_TESTS, 0):
        terminalreporter.write_line(f"no GPU here: {number} tests that need one were left out")


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> CheckpointFactory:
    """`checkpoint(family, head="base", seed=0, **config_overrides)`: a folder, shared by the session. Do not write to
    it; a test that adds or breaks files calls `tiny_checkpoint` with its own `tmp_path`.
    """
    folders: dict[str, Path] = {}

    def make(family: str, *, head: Head = "base", seed: int = 0, **config_overrides: Any) -> Path:
        key = repr((family, head, seed, sorted(config_overrides.items())))
        if key not in folders:
            folder = tmp_path_factory.mktemp(family)
            folders[key] = tiny_checkpoint(family, folder, head=head, seed=seed, **config_overrides)
        return folders[key]

    return make

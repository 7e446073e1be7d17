"""One server for all tests of this folder, with two models of 64 values and 64 tokens.

`tiny` may be cut to any size and has prompts; `fixed` was not trained for smaller sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import RunningServer, run_server

from cenote.engine import AsyncEngine
from cenote.runtime.loop import Loop
from tiny import add_sentence_transformers_files, tiny_checkpoint

PROMPTS = {"query": "the cat: ", "document": "a dog: "}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the served models by their names."""
    made = {}
    for seed, name in enumerate(("tiny", "fixed")):
        folder = tiny_checkpoint("bert", tmp_path_factory.mktemp(name), seed=seed)
        made[name] = add_sentence_transformers_files(
            folder, normalize=True, prompts=PROMPTS if name == "tiny" else None
        )
    return made


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[RunningServer]:
    loop = Loop()
    engines = {
        name: AsyncEngine(folder, loop=loop, any_dimensions=name == "tiny", threads=1)
        for name, folder in folders.items()
    }
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()
    loop.close()

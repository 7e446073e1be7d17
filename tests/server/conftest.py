"""Two servers for the tests of this folder, with models of 64 values and 64 tokens.

`server` has `tiny`, which may be cut to any size and has prompts, and `fixed`, whose files do not say that.
`kinds` has a model of each kind: `dense`, `reranker`, `nli` and `m3`, which gives three outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from running import RunningServer, run_server

from cenote.engine import AsyncEngine
from cenote.runtime.loop import Loop
from tiny import HIDDEN_SIZE, add_sentence_transformers_files, tiny_checkpoint

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
def kind_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the models of `kinds` by their names."""
    place = tmp_path_factory.mktemp("kinds")
    dense = tiny_checkpoint("bert", place / "dense")
    add_sentence_transformers_files(dense, normalize=True, prompts={**PROMPTS, "classification": "water: "})
    reranker = tiny_checkpoint("bert", place / "reranker", head="sequence_classification", num_labels=1)
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    names = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
    nli = tiny_checkpoint("bert", place / "nli", head="sequence_classification", **names)
    m3 = tiny_checkpoint("xlm-roberta", place / "m3")
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), m3 / f"{name}.pt")
    return {"dense": dense, "reranker": reranker, "nli": nli, "m3": m3}


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[RunningServer]:
    yield from serve(folders, any_dimensions=("tiny",))


@pytest.fixture(scope="session")
def kinds(kind_folders: dict[str, Path]) -> Iterator[RunningServer]:
    yield from serve(kind_folders, any_dimensions=("dense", "m3"))


def serve(folders: dict[str, Path], any_dimensions: tuple[str, ...]) -> Iterator[RunningServer]:
    """Serve the models in `folders`; those named in `any_dimensions` may be cut to any size."""
    loop = Loop()
    engines = {
        name: AsyncEngine(folder, loop=loop, any_dimensions=name in any_dimensions, threads=1)
        for name, folder in folders.items()
    }
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()
    loop.close()

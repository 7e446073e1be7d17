"""Checkpoints of these tests: plain BERT and sentence-transformers' own saves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoint_folders import CheckpointFactory, writable
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tiny import HIDDEN_SIZE


@pytest.fixture
def bert(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    """A plain BERT that the test may write to."""
    return writable(checkpoint("bert"), tmp_path)


@pytest.fixture(scope="session")
def saved_chain(checkpoint: CheckpointFactory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transformer, Pooling (cls + mean), two Dense, Normalize, as sentence-transformers saves them."""
    model = SentenceTransformer(
        modules=[
            Transformer(str(checkpoint("bert"))),
            Pooling(HIDDEN_SIZE, ("mean", "cls")),
            Dense(2 * HIDDEN_SIZE, 24, activation_function=torch.nn.Tanh()),
            Dense(24, 8, bias=False, activation_function=torch.nn.Identity()),
            Normalize(),
        ],
        prompts={"query": "find: ", "document": ""},
        default_prompt_name="query",
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("chain") / "model"
    model.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture
def chain(saved_chain: Path, tmp_path: Path) -> Path:
    """`saved_chain`, but the test may write to it."""
    return writable(saved_chain, tmp_path)

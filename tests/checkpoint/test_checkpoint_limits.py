"""True input limits, each against what transformers really accepts, and their reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, writable
from transformers import AutoModel

from cenote.checkpoint import read_checkpoint
from cenote.errors import CheckpointError
from tiny import FAMILIES, add_sentence_transformers_files


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_its_true_limit(checkpoint: CheckpointFactory, tmp_path: Path, family: str) -> None:
    folder = writable(checkpoint(family), tmp_path)
    edit(folder / "tokenizer_config.json", model_max_length=int(1e30))
    if FAMILIES[family].style == "t5":
        assert read_checkpoint(folder, pooling="mean").text.max_length == 512
        return
    assert read_checkpoint(folder, pooling="mean").text.max_length == FAMILIES[family].limit


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert", "electra"])
def test_one_token_more_than_the_limit_fails_in_transformers(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family)
    limit = read_checkpoint(folder, pooling="mean").text.max_length
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        model(torch.full((1, limit), 9))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, limit + 1), 9))


@pytest.mark.parametrize("pad_token_id", [1, 5])
def test_the_padding_row_moves_the_limit(checkpoint: CheckpointFactory, tmp_path: Path, pad_token_id: int) -> None:
    folder = writable(checkpoint("xlm-roberta", pad_token_id=pad_token_id, max_position_embeddings=66), tmp_path)
    edit(folder / "tokenizer_config.json", model_max_length=...)
    text = read_checkpoint(folder, pooling="mean").text
    assert text.max_length == 66 - pad_token_id - 1
    assert f"{pad_token_id + 1} of them before the first position" in text.max_length_reason


def test_the_published_514_positions_mean_512_tokens(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = writable(checkpoint("roberta", max_position_embeddings=514), tmp_path)
    edit(folder / "tokenizer_config.json", model_max_length=int(1e30))
    assert read_checkpoint(folder, pooling="cls").text.max_length == 512


@pytest.mark.parametrize(
    ("tokenizer", "max_seq_length", "limit", "reason"),
    [
        (int(1e30), None, 64, "max_position_embeddings"),
        (40, None, 40, "model_max_length of the tokenizer"),
        (40, 20, 20, "max_seq_length of sentence-transformers"),
        (40, 50, 50, "max_seq_length of sentence-transformers"),
        (40, 500, 64, "max_position_embeddings"),
    ],
)
def test_the_smallest_limit_and_its_reason(
    bert: Path, tokenizer: int, max_seq_length: int | None, limit: int, reason: str
) -> None:
    add_sentence_transformers_files(bert, max_seq_length=max_seq_length)
    edit(bert / "tokenizer_config.json", model_max_length=tokenizer)
    text = read_checkpoint(bert).text
    assert text.max_length == limit
    assert text.max_length_reason.startswith(reason)


def test_tokenizer_arguments_of_sentence_transformers(bert: Path) -> None:
    add_sentence_transformers_files(bert)
    edit(bert / "sentence_bert_config.json", tokenizer_args={"model_max_length": 24}, max_seq_length=30)
    assert read_checkpoint(bert).text.max_length == 24


@pytest.mark.parametrize("rows", [0, -1, "512", None, True])
def test_a_limit_that_is_none(bert: Path, rows: object) -> None:
    edit(bert / "config.json", max_position_embeddings=rows)
    with pytest.raises(CheckpointError, match="max_position_embeddings as a positive number"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize(
    ("family", "types"),
    [
        ("bert", True),
        ("nomic_bert", True),
        ("roberta", False),
        ("distilbert", False),
        ("mpnet", False),
        ("qwen3", False),
    ],
)
def test_token_types(checkpoint: CheckpointFactory, family: str, types: bool) -> None:
    assert read_checkpoint(checkpoint(family), pooling="mean").text.uses_token_types is types


@pytest.mark.parametrize(
    ("family", "causal"),
    [("bert", False), ("qwen3", True), ("qwen3_bidirectional", False), ("gemma3_text_bidirectional", False)],
)
def test_causality(checkpoint: CheckpointFactory, family: str, causal: bool) -> None:
    assert read_checkpoint(checkpoint(family), pooling="last").is_causal is causal

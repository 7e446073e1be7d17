"""Heads taken out of transformers' `*For...` models, against the forward of those models, one text at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import load_tiny, random_texts, run_packed, run_plain
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from cenote.checkpoint import read_checkpoint
from cenote.errors import CheckpointError
from cenote.models.load import load_model
from cenote.models.verify import classify_one
from tiny import FAMILIES, HIDDEN_SIZE, CheckpointFactory, tiny_checkpoint
from tolerances import assert_close

CAUSAL = [name for name, family in FAMILIES.items() if family.style == "decoder"]
ENCODERS = [name for name in FAMILIES if name not in (*CAUSAL, "t5", "mt5")]
TOKEN_FAMILIES = [name for name in FAMILIES if not name.startswith("gemma3")]
TEXTS = random_texts([3, 17, 17, 1], seed=8)


def eager(auto: type, folder: Path) -> torch.nn.Module:
    return auto.from_pretrained(folder, attn_implementation="eager", local_files_only=True).eval()  # type: ignore[no-any-return, attr-defined]


def check_classifier(folder: Path) -> None:
    loaded, plain = load_tiny(folder, "sequence_classification"), eager(AutoModelForSequenceClassification, folder)
    assert loaded.classifier is not None
    for hidden, ids in zip(run_packed(loaded, TEXTS), TEXTS, strict=True):
        logits = classify_one(loaded.classifier, hidden)
        assert logits.dtype == torch.float32
        assert_close(logits[0], run_plain(plain, ids), "raw")


@pytest.mark.parametrize("family", [*ENCODERS, *CAUSAL])
def test_sequence_classification(checkpoint: CheckpointFactory, family: str) -> None:
    check_classifier(checkpoint(family, head="sequence_classification"))


@pytest.mark.parametrize(("family", "pooling"), [("modernbert", "mean"), ("eurobert", "mean"), ("eurobert", "bos")])
def test_other_rows_that_a_config_may_ask_for(checkpoint: CheckpointFactory, family: str, pooling: str) -> None:
    check_classifier(checkpoint(family, head="sequence_classification", classifier_pooling=pooling))


@pytest.mark.parametrize("family", TOKEN_FAMILIES)
def test_token_classification(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family, head="token_classification")
    loaded, plain = load_tiny(folder, "token_classification"), eager(AutoModelForTokenClassification, folder)
    assert loaded.token_classifier is not None
    for hidden, ids in zip(run_packed(loaded, TEXTS), TEXTS, strict=True):
        assert_close(loaded.token_classifier(hidden), run_plain(plain, ids), "raw")


@pytest.mark.parametrize("family", ENCODERS)
def test_masked_lm_with_the_tied_decoder_absent(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family, head="masked_lm")
    loaded, plain = load_tiny(folder, "masked_lm"), eager(AutoModelForMaskedLM, folder)
    assert loaded.masked_lm_head is not None
    with torch.inference_mode():
        for hidden, ids in zip(run_packed(loaded, TEXTS), TEXTS, strict=True):
            assert_close(loaded.masked_lm_head(hidden), run_plain(plain, ids), "raw")


def test_the_newer_deberta_head(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("deberta-v2", head="masked_lm", legacy=False)
    loaded, plain = load_tiny(folder, "masked_lm"), eager(AutoModelForMaskedLM, folder)
    assert loaded.masked_lm_head is not None
    with torch.inference_mode():
        hidden = run_packed(loaded, TEXTS)[1]
        assert_close(loaded.masked_lm_head(hidden), run_plain(plain, TEXTS[1]), "raw")


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_reranker_scores_with_two_rows_of_the_vocabulary_head(
    checkpoint: CheckpointFactory, family: str, tied: bool
) -> None:
    folder = checkpoint(family, head="causal_lm", tie_word_embeddings=tied)
    loaded, plain = load_tiny(folder, "causal_lm"), eager(AutoModelForCausalLM, folder)
    assert loaded.classifier is not None
    assert loaded.classifier.rows == "last"
    for hidden, ids in zip(run_packed(loaded, TEXTS), TEXTS, strict=True):
        logits = run_plain(plain, ids)[-1]
        assert_close(classify_one(loaded.classifier, hidden)[0], logits[41:42] - logits[43:44], "raw")


def test_heads_of_a_half_precision_model_run_in_float32(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification")
    loaded = load_tiny(folder, "sequence_classification", torch.bfloat16)
    assert loaded.classifier is not None
    logits = classify_one(loaded.classifier, run_packed(loaded, TEXTS)[1])
    plain = eager(AutoModelForSequenceClassification, folder)
    assert logits.dtype == torch.float32
    assert (logits[0] - run_plain(plain, TEXTS[1])).abs().max() < 0.2


@pytest.mark.parametrize("architecture", ["Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"])
def test_reward_models_bring_a_two_layer_score(tmp_path: Path, architecture: str) -> None:
    folder = write_reward_model(tmp_path, architecture)
    spec = read_checkpoint(folder)
    loaded = load_model(spec, dtype=torch.float32, device=torch.device("cpu"))
    score = load_file(folder / "model.safetensors")
    hidden = run_packed(loaded, TEXTS)[1]
    inner = torch.relu(hidden @ score["score.0.weight"].T + score["score.0.bias"])
    reference = inner @ score["score.2.weight"].T + score["score.2.bias"]
    head = loaded.token_classifier or (loaded.classifier and loaded.classifier.module)
    assert isinstance(head, torch.nn.Module)
    assert_close(head(hidden), reference, "raw")
    assert loaded.unused_weights == ()


def test_a_reward_head_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = write_reward_model(tmp_path, "Qwen2ForProcessRewardModel")
    weights = load_file(folder / "model.safetensors")
    weights["score.0.weight"] = torch.zeros(3, 3)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"score|reward head"):
        load_model(read_checkpoint(folder), dtype=torch.float32, device=torch.device("cpu"))


def write_reward_model(folder: Path, architecture: str) -> Path:
    """Write a Qwen2 backbone under the keys of a causal model, with the `score` layers of the reward models."""
    num_labels = 2 if "Process" in architecture else 1
    tiny_checkpoint("qwen2", folder, head="causal_lm", num_labels=num_labels)
    config = (folder / "config.json").read_text().replace("Qwen2ForCausalLM", architecture)
    (folder / "config.json").write_text(config)
    weights = {key: value for key, value in load_file(folder / "model.safetensors").items() if "lm_head" not in key}
    generator = torch.Generator().manual_seed(3)
    for name, shape in {
        "score.0.weight": (HIDDEN_SIZE, HIDDEN_SIZE),
        "score.0.bias": (HIDDEN_SIZE,),
        "score.2.weight": (num_labels, HIDDEN_SIZE),
        "score.2.bias": (num_labels,),
    }.items():
        weights[name] = 0.3 * torch.randn(shape, generator=generator)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder

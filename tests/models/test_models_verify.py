"""`verify_model` lets every right model pass and refuses one whose packed run went wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_models import load_tiny, tiny_spec

from cenote.errors import CheckpointError
from cenote.models.attention_step import LayerAttention
from cenote.models.verify import verify_model
from tiny import FAMILIES, CheckpointFactory


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family)
    result = verify_model(load_tiny(folder), tiny_spec(folder))
    assert result.num_texts == 3
    assert result.num_tokens == 60
    assert result.worst < 0.5


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "eurobert", "qwen3", "modernbert"])
def test_a_classifier_is_verified_too(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family, head="sequence_classification")
    loaded, spec = load_tiny(folder, "sequence_classification"), tiny_spec(folder, "sequence_classification")
    verify_model(loaded, spec)
    assert loaded.classifier is not None
    wrong = replace(loaded.classifier, rows="last" if loaded.classifier.rows != "last" else "mean")
    with pytest.raises(CheckpointError, match="classifier's logits"):
        verify_model(replace(loaded, classifier=wrong), spec)


def test_wrong_positions_are_refused(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("xlm-roberta")
    with pytest.raises(CheckpointError, match=r"differ .* hidden states.*XLMRobertaModel"):
        verify_model(replace(load_tiny(folder), position_offset=0), tiny_spec(folder))


@pytest.mark.parametrize("change", [{"causal": True}, {"scaling": 0.2}])
def test_wrong_attention_is_refused(
    checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    from cenote.models import attention

    right = attention.attend

    def wrong(step: object, *heads: torch.Tensor, **_: object) -> torch.Tensor:
        *parts, layer = heads
        assert isinstance(layer, LayerAttention)
        return right(step, *parts, replace(layer, **change))  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "attend", wrong)
    folder = checkpoint("nomic_bert")
    with pytest.raises(CheckpointError, match="differ"):
        verify_model(load_tiny(folder), tiny_spec(folder))


def test_the_model_runs_packed_again_afterwards(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert")
    loaded = load_tiny(folder)
    verify_model(loaded, tiny_spec(folder))
    assert verify_model(loaded, tiny_spec(folder)).worst < 0.5


def test_half_precision_passes_on_a_tame_model(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", initializer_range=0.05)
    assert verify_model(load_tiny(folder, dtype=torch.bfloat16), tiny_spec(folder)).worst < 0.5

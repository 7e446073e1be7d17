"""Fused blocks against the transformers modules whose weights they share."""

from __future__ import annotations

import pytest
import torch
from tiny_models import load_tiny, pack_for, random_texts, run_packed

from cenote.models.backbone import PackedBackbone
from cenote.models.fused import FUSED_TYPES, FusedBackbone
from tiny import CheckpointFactory
from tolerances import assert_close

TWINS = sorted(FUSED_TYPES - {"mpnet"})
TEXTS = random_texts([5, 40, 1, 1, 40], seed=12)


@pytest.mark.parametrize("family", TWINS)
def test_fused_blocks_equal_their_twin(checkpoint: CheckpointFactory, family: str) -> None:
    loaded = load_tiny(checkpoint(family))
    assert isinstance(loaded.backbone, FusedBackbone)
    twin = PackedBackbone(loaded.module, loaded.attention)
    batch = pack_for(loaded, TEXTS)
    with torch.inference_mode():
        assert_close(loaded.backbone(batch), twin(batch), "raw")


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations(checkpoint: CheckpointFactory, activation: str) -> None:
    loaded = load_tiny(checkpoint("bert", hidden_act=activation))
    batch = pack_for(loaded, TEXTS)
    with torch.inference_mode():
        assert_close(loaded.backbone(batch), PackedBackbone(loaded.module, loaded.attention)(batch), "raw")


def test_running_twice_gives_the_same(checkpoint: CheckpointFactory) -> None:
    """The blocks write over their input, which must not be a weight or a cached embedding."""
    loaded = load_tiny(checkpoint("bert"))
    first, second = run_packed(loaded, TEXTS), run_packed(loaded, TEXTS)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_weights_are_held_once(checkpoint: CheckpointFactory) -> None:
    loaded = load_tiny(checkpoint("bert"))
    block = loaded.backbone.layers[0]
    attention = loaded.module.encoder.layer[0].attention.self
    storage = block.query_key_value.weight.untyped_storage().data_ptr()
    for linear in (attention.query, attention.key, attention.value):
        assert linear.weight.untyped_storage().data_ptr() == storage

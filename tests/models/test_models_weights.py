"""Weights that are missing, cut short or misshapen do not load, and the error says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import CPU, load_tiny, plain_backbone, random_texts, run_packed, run_plain, tiny_spec

from cenote.checkpoint.spec import ModelSpec, MultiVectorSpec, TensorSource
from cenote.errors import CheckpointError
from cenote.models.load import load_model
from tiny import Head, tiny_checkpoint
from tolerances import assert_close

Weights = dict[str, torch.Tensor]
TEXT = random_texts([9], seed=9)[0]


def change_weights(folder: Path, change: Callable[[Weights], Weights]) -> None:
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})


def without(key: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: tensor for name, tensor in weights.items() if name != key}


@pytest.mark.parametrize(
    ("family", "head", "key"),
    [
        ("bert", "base", "encoder.layer.1.output.dense.weight"),
        ("bert", "base", "embeddings.LayerNorm.bias"),
        ("bert", "sequence_classification", "bert.pooler.dense.weight"),
        ("bert", "sequence_classification", "classifier.bias"),
        ("bert", "masked_lm", "cls.predictions.transform.dense.weight"),
        ("nomic_bert", "base", "encoder.layers.0.attn.Wqkv.weight"),
        ("qwen3", "base", "layers.0.self_attn.q_norm.weight"),
        ("mpnet", "base", "encoder.relative_attention_bias.weight"),
        ("t5", "base", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    ],
)
def test_a_missing_weight_is_named(tmp_path: Path, family: str, head: Head, key: str) -> None:
    tiny_checkpoint(family, tmp_path, head=head)
    change_weights(tmp_path, without(key))
    with pytest.raises(CheckpointError, match=r"model\.safetensors") as caught:
        load_tiny(tmp_path, head)
    last_part = {"Wqkv": "q_proj"}.get(key.split(".")[-2], key.split(".")[-2])
    assert last_part in str(caught.value)


def test_a_pooler_that_nobody_uses_may_be_absent(tmp_path: Path) -> None:
    """HF loads such a checkpoint with a random pooler; a bare backbone has none."""
    tiny_checkpoint("bert", tmp_path)
    change_weights(tmp_path, without("pooler.dense.weight"))
    loaded = load_tiny(tmp_path)
    assert loaded.module.pooler is None
    assert loaded.unused_weights == ("pooler.dense.bias",)


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    tiny_checkpoint("bert", tmp_path)
    key = "encoder.layer.0.attention.self.query.weight"
    change_weights(tmp_path, lambda weights: {**weights, key: torch.zeros(8, 8)})
    with pytest.raises(CheckpointError, match=r"attention\.self\.query\.weight.*\(8, 8\).*\(64, 64\)"):
        load_tiny(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
def test_a_file_cut_short_is_named(tmp_path: Path, keep: float) -> None:
    """The spec was read while the file was whole, as when a download is cut off in between."""
    tiny_checkpoint("bert", tmp_path)
    spec = tiny_spec(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_model(spec, dtype=torch.float32, device=CPU)


def pickled(folder: Path) -> ModelSpec:
    """Turn the folder's weights into `pytorch_model.bin` and return its spec."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return tiny_spec(folder)


def test_pickled_weights_load_too(tmp_path: Path) -> None:
    plain = plain_backbone(tiny_checkpoint("bert", tmp_path), "bert")
    loaded = load_model(pickled(tmp_path), dtype=torch.float32, device=CPU)
    assert_close(run_packed(loaded, [TEXT])[0], run_plain(plain, TEXT), "raw")


def test_pickled_weights_cut_short_are_named(tmp_path: Path) -> None:
    spec = pickled(tiny_checkpoint("bert", tmp_path))
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        load_model(spec, dtype=torch.float32, device=CPU)


def test_no_weights_at_all(tmp_path: Path) -> None:
    spec = replace(tiny_spec(tiny_checkpoint("bert", tmp_path)), weight_files=())
    with pytest.raises(CheckpointError, match="no weights"):
        load_model(spec, dtype=torch.float32, device=CPU)


def test_old_layer_norm_names_and_a_prefix(tmp_path: Path) -> None:
    """`gamma` and `beta` under `bert.`, as TensorFlow's first checkpoints were carried over."""
    plain = plain_backbone(tiny_checkpoint("bert", tmp_path), "bert")

    def renamed(weights: Weights) -> Weights:
        pairs = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
        result = {}
        for name, tensor in weights.items():
            for new, old in pairs:
                name = name.replace(new, old)
            result["bert." + name] = tensor
        return result

    change_weights(tmp_path, renamed)
    assert_close(run_packed(load_tiny(tmp_path), [TEXT])[0], run_plain(plain, TEXT), "raw")


def test_weights_that_nothing_takes_are_listed(tmp_path: Path) -> None:
    tiny_checkpoint("roberta", tmp_path, head="masked_lm")
    spec = replace(tiny_spec(tmp_path, "masked_lm"), embed_sparse=None)
    loaded = load_model(spec, dtype=torch.float32, device=CPU)
    assert "lm_head.dense.weight" in loaded.unused_weights


def test_weights_that_a_pooler_takes_are_used(tmp_path: Path) -> None:
    """As in HF_ColBERT, whose linear layer lies beside the backbone's weights."""
    tiny_checkpoint("bert", tmp_path)
    change_weights(tmp_path, lambda weights: {**weights, "linear.weight": torch.zeros(16, 64)})
    spec = tiny_spec(tmp_path)
    assert "linear.weight" in load_model(spec, dtype=torch.float32, device=CPU).unused_weights
    linear = TensorSource(path=tmp_path / "model.safetensors", prefix="linear")
    spec = replace(spec, token_embed=MultiVectorSpec(linear=linear, dimensions=16))
    assert "linear.weight" not in load_model(spec, dtype=torch.float32, device=CPU).unused_weights


def test_a_head_that_transformers_does_not_have(tmp_path: Path) -> None:
    tiny_checkpoint("t5", tmp_path, head="sequence_classification")
    with pytest.raises(CheckpointError, match="sequence classification"):
        load_tiny(tmp_path, "sequence_classification")


def test_loading_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tiny_checkpoint("roberta", tmp_path, head="masked_lm")
    spec = replace(tiny_spec(tmp_path, "masked_lm"), embed_sparse=None)
    capfd.readouterr()
    load_model(spec, dtype=torch.float32, device=CPU)
    assert capfd.readouterr() == ("", "")

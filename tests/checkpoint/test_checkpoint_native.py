"""Hub configurations with code of their own: translated where transformers has the model, refused elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, writable
from transformers import AutoConfig, AutoModel, GteConfig, NomicBertConfig
from transformers.models.gte.modeling_gte import GteRotaryEmbedding

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.native import to_native
from cenote.errors import CheckpointError

NOMIC: dict[str, Any] = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoConfig": "configuration_hf_nomic_bert.NomicBertConfig"},
    "causal": False,
    "dense_seq_output": True,
    "fused_bias_fc": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "n_layer": 2,
    "n_positions": 8192,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 500,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "vocab_size": 200,
}
"""The keys of nomic-embed-text-v1.5, smaller."""

GTE: dict[str, Any] = {
    "architectures": ["NewModel"],
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "hidden_size": 64,
    "intermediate_size": 96,
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "max_position_embeddings": 8192,
    "model_type": "new",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "rope_theta": 20000,
    "type_vocab_size": 1,
    "vocab_size": 200,
}
"""The keys of gte-multilingual-base, smaller."""


def test_nomic_bert_in_the_spelling_of_the_hub() -> None:
    native = to_native(NOMIC)
    config = NomicBertConfig.from_dict(native)
    assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers) == (64, 4, 2)
    assert (config.intermediate_size, config.hidden_act, config.max_position_embeddings) == (96, "silu", 8192)
    assert config.rope_parameters["rope_theta"] == 500
    assert "auto_map" not in native
    AutoModel.from_config(config)


def test_nomic_bert_is_read_whole(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = writable(checkpoint("nomic_bert"), tmp_path)
    (folder / "config.json").unlink()
    edit(folder / "config.json", **NOMIC)
    spec = read_checkpoint(folder, pooling="mean")
    assert (spec.hidden_size, spec.model_type, spec.text.uses_token_types) == (64, "nomic_bert", True)


def test_nomic_bert_in_the_spelling_of_transformers(checkpoint: CheckpointFactory) -> None:
    config = AutoConfig.from_pretrained(checkpoint("nomic_bert")).to_dict()
    assert to_native(config) == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prenorm", True),
        ("use_rms_norm", True),
        ("qkv_proj_bias", True),
        ("num_experts", 8),
        ("rotary_emb_fraction", 0.5),
        ("rotary_scaling_factor", 2.0),
        ("activation_function", "gelu"),
        ("causal", True),
    ],
)
def test_nomic_bert_that_transformers_does_not_have(key: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=f"{key}={value!r}"):
        to_native({**NOMIC, key: value})


@pytest.mark.parametrize(("factor", "theta"), [(8.0, 20000.0), (2.0, 500000.0), (None, 160000.0)])
def test_rotary_frequencies_of_gte(factor: float | None, theta: float) -> None:
    """The fixed NTK scaling of Alibaba's own code: a raised base, and every frequency divided by factor^(2/d)."""
    scaling = None if factor is None else {"factor": factor, "type": "ntk"}
    native = to_native({**GTE, "rope_theta": theta, "rope_scaling": scaling})
    assert native["architectures"] == ["GteModel"]
    frequencies = GteRotaryEmbedding(GteConfig.from_dict(native)).inv_freq.numpy()
    head_size = 16
    base = theta * (factor or 1.0)
    expected = base ** (-np.arange(0, head_size, 2) / head_size) / (factor or 1.0) ** (2 / head_size)
    np.testing.assert_allclose(frequencies, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "absolute"),
        ("layer_norm_type", "rms_norm"),
        ("logn_attention_scale", True),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("rope_scaling", {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}),
    ],
)
def test_gte_that_transformers_does_not_have(key: str, value: object) -> None:
    with pytest.raises(CheckpointError, match="transformers' GTE cannot do"):
        to_native({**GTE, key: value})


@pytest.mark.parametrize("family", ["gte", "eurobert", "jina_embeddings_v3"])
def test_families_that_moved_into_transformers_unchanged(
    checkpoint: CheckpointFactory, tmp_path: Path, family: str
) -> None:
    folder = writable(checkpoint(family), tmp_path)
    edit(folder / "config.json", auto_map={"AutoModel": "modeling.Model"})
    assert "auto_map" not in read_checkpoint(folder, pooling="cls").config


def test_code_of_the_checkpoints_own_is_refused_by_name(bert: Path) -> None:
    auto_map = {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}
    edit(bert / "config.json", auto_map=auto_map, position_embedding_type="alibi")
    with pytest.raises(CheckpointError, match=r"modeling_bert\.JinaBertModel\), and Cenote runs no code"):
        read_checkpoint(bert, pooling="mean")
    edit(bert / "config.json", auto_map=...)
    with pytest.raises(CheckpointError, match="'alibi' positions"):
        read_checkpoint(bert, pooling="mean")


def test_a_rotary_xlm_roberta_is_not_the_one_of_transformers(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    """jina-embeddings-v3 in its first form: model_type xlm-roberta, but rotary positions and adapters."""
    folder = writable(checkpoint("xlm-roberta"), tmp_path)
    auto_map = {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"}
    edit(folder / "config.json", auto_map=auto_map, position_embedding_type="rotary")
    with pytest.raises(CheckpointError, match=r"XLMRobertaLoRA.*converted one"):
        read_checkpoint(folder, pooling="mean")


def test_a_qwen2_whose_code_only_switches_causality_off(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = writable(checkpoint("qwen2"), tmp_path)
    edit(folder / "config.json", auto_map={"AutoModel": "modeling_qwen.Qwen2Model"})
    with pytest.raises(CheckpointError, match=r"modeling_qwen\.Qwen2Model"):
        read_checkpoint(folder, pooling="last")
    edit(folder / "config.json", is_causal=False)
    assert read_checkpoint(folder, pooling="last").is_causal is False


def test_config_arguments_of_sentence_transformers_reach_the_config(bert: Path) -> None:
    edit(bert / "sentence_bert_config.json", config_args={"layer_norm_eps": 0.5, "trust_remote_code": True})
    config = read_checkpoint(bert, pooling="mean").config
    assert config["layer_norm_eps"] == 0.5
    assert "trust_remote_code" not in config


def test_translated_weights_load_in_transformers(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    """A checkpoint under the hub's names and keys gives the numbers of the native one."""
    native = AutoModel.from_pretrained(checkpoint("nomic_bert")).eval()
    folder = tmp_path / "hub"
    native.save_pretrained(folder)
    hub = {**NOMIC, "n_positions": 64, "rotary_emb_base": native.config.rope_parameters["rope_theta"]}
    translated = NomicBertConfig.from_dict(to_native(hub))
    again = AutoModel.from_pretrained(folder, config=translated).eval()
    ids = torch.arange(5, 20)[None]
    with torch.no_grad():
        assert torch.equal(native(ids).last_hidden_state, again(ids).last_hidden_state)

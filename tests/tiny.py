"""Tiny seeded checkpoints, as transformers and sentence-transformers save them.

Hidden size 64 and `initializer_range` 0.3: with smaller weights a wrong mask or token type cannot be seen. Norms and
biases are moved off their neutral start for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from tiny_tokenizers import APPENDED_EOS_ID, CONFIG_EOS_ID, VOCAB_SIZE, TokenizerStyle, save_tiny_tokenizer

HIDDEN_SIZE = 64
CheckpointFactory = Callable[..., Path]
"""What the fixture `checkpoint` of `tests/conftest.py` is."""
Head = Literal["base", "sequence_classification", "token_classification", "masked_lm", "causal_lm"]


@dataclass(frozen=True)
class Family:
    """How a family's tiny checkpoint is built. `limit` counts the tokens of its longest text."""

    model_type: str
    style: TokenizerStyle
    config: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 64


_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
_BERT_IDS = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": None, "eos_token_id": None}
_ROBERTA = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 66}
_DECODER = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": None,
    "eos_token_id": CONFIG_EOS_ID,
    "pad_token_id": APPENDED_EOS_ID,
}
_T5 = {
    **{"d_model": HIDDEN_SIZE, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
_HYBRID_LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}

FAMILIES: dict[str, Family] = {
    "bert": Family("bert", "bert", {"type_vocab_size": 2, "pad_token_id": 0}),
    "electra": Family("electra", "bert", {"embedding_size": 32, "pad_token_id": 0}),
    "distilbert": Family(
        "distilbert", "bert", {"dim": HIDDEN_SIZE, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "pad_token_id": 0}
    ),
    "modernbert": Family("modernbert", "bert", {**_BERT_IDS, "local_attention": 8, "norm_bias": True}),
    "nomic_bert": Family("nomic_bert", "bert", {"type_vocab_size": 2, "pad_token_id": 0}),
    "deberta-v2": Family(
        "deberta-v2",
        "bert",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 16,
            "position_biased_input": False,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "type_vocab_size": 0,
            "pad_token_id": 0,
        },
    ),
    "roberta": Family("roberta", "roberta", {**_ROBERTA, "type_vocab_size": 1}),
    "xlm-roberta": Family("xlm-roberta", "roberta", {**_ROBERTA, "type_vocab_size": 1}),
    "camembert": Family("camembert", "roberta", {**_ROBERTA, "type_vocab_size": 1}),
    "mpnet": Family("mpnet", "roberta", _ROBERTA),
    "gte": Family("gte", "roberta", {**_ROBERTA, "max_position_embeddings": 64}),
    "eurobert": Family(
        "eurobert",
        "roberta",
        {**_ROBERTA, "max_position_embeddings": 64, "num_key_value_heads": 2, "mask_token_id": 4},
    ),
    "jina_embeddings_v3": Family("jina_embeddings_v3", "roberta", {**_ROBERTA, "max_position_embeddings": 64}),
    "t5": Family("t5", "t5", _T5),
    "mt5": Family("mt5", "t5", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "qwen2": Family("qwen2", "decoder", _DECODER),
    "qwen2_bidirectional": Family("qwen2", "decoder", {**_DECODER, "is_causal": False}),
    "qwen3": Family("qwen3", "decoder", _DECODER),
    "qwen3_bidirectional": Family("qwen3", "decoder", {**_DECODER, "is_causal": False}),
    "llama": Family("llama", "decoder", _DECODER),
    "llama_bidirectional": Family("llama", "decoder", {**_DECODER, "is_causal": False}),
    "mistral": Family("mistral", "decoder", {**_DECODER, "sliding_window": 5}),
    "mistral_bidirectional": Family("mistral", "decoder", {**_DECODER, "sliding_window": 5, "is_causal": False}),
    "gemma": Family("gemma", "decoder", _DECODER),
    "gemma2": Family(
        "gemma2",
        "decoder",
        {**_DECODER, **_HYBRID_LAYERS, "attn_logit_softcapping": 4.0, "query_pre_attn_scalar": 16},
    ),
    "gemma3_text": Family("gemma3_text", "decoder", {**_DECODER, **_HYBRID_LAYERS, "query_pre_attn_scalar": 16}),
    "gemma3_text_bidirectional": Family(
        "gemma3_text",
        "decoder",
        {**_DECODER, **_HYBRID_LAYERS, "query_pre_attn_scalar": 16, "use_bidirectional_attention": True},
    ),
}

_AUTO_CLASSES = {
    "base": AutoModel,
    "sequence_classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "masked_lm": AutoModelForMaskedLM,
    "causal_lm": AutoModelForCausalLM,
}


def tiny_checkpoint(family: str, folder: Path, *, head: Head = "base", seed: int = 0, **config_overrides: Any) -> Path:
    """Write a seeded checkpoint of one of `FAMILIES` with its tokenizer into `folder` and return the folder.

    A head with labels has three, unless `num_labels` says otherwise.
    """
    facts = FAMILIES[family]
    extra = {"num_labels": 3} if head.endswith("classification") else {}
    config = AutoConfig.for_model(facts.model_type, **{**_SIZES, **facts.config, **extra, **config_overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        is_t5 = facts.style == "t5"
        auto_class = AutoModelForTextEncoding if is_t5 and head == "base" else _AUTO_CLASSES[head]
        model = auto_class.from_config(config)
        _perturb(model, is_t5=is_t5)
    model.save_pretrained(folder)
    pad = config_overrides.get("pad_token_id")
    save_tiny_tokenizer(folder, facts.style, max_length=facts.limit, pad_token_id=pad)
    return folder


def _perturb(model: PreTrainedModel, *, is_t5: bool) -> None:
    """Move norms and biases off 1 and 0; T5 ignores `initializer_range` and gets its weights here."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
            elif is_t5:
                is_query = name.endswith(".q.weight")
                parameter.normal_(std=0.075 if is_query else 0.3)


_ST = "sentence_transformers.models"
_OLD_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


@dataclass(frozen=True)
class TinyDense:
    """One Dense module; `activation` is a class of `torch.nn`. The folder is `{index}_{folder_suffix}`."""

    in_features: int
    out_features: int
    activation: str = "Tanh"
    bias: bool = True
    folder_suffix: str = "Dense"
    safetensors: bool = True


def add_sentence_transformers_files(
    folder: Path,
    *,
    pooling_mode: str | Sequence[str] = "mean",
    dense: Sequence[TinyDense] = (),
    normalize: bool = False,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    max_seq_length: int | None = None,
    include_prompt: bool = True,
    compact: bool = False,
    do_lower_case: bool = False,
) -> Path:
    """Write `modules.json`, `1_Pooling`, one folder for each Dense module and the settings files; return `folder`.

    `compact` chooses the newer `pooling_mode` key over the old booleans. Dense weights are seeded by their index.
    """
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    _write_json(folder / "1_Pooling" / "config.json", _pooling_config(pooling_mode, include_prompt, compact))
    for facts in dense:
        path = f"{len(modules)}_{facts.folder_suffix}"
        _write_dense(folder / path, facts, seed=len(modules))
        modules.append((path, "Dense"))
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": f"{_ST}.{kind}"} for i, (path, kind) in enumerate(modules)
    ]
    _write_json(folder / "modules.json", listing)
    settings = {"max_seq_length": max_seq_length, "do_lower_case": do_lower_case}
    _write_json(folder / "sentence_bert_config.json", settings)
    versions = {"sentence_transformers": "6.2.0", "transformers": "5.24.0", "pytorch": "2.13.0"}
    st_config = {"__version__": versions, "prompts": dict(prompts or {}), "default_prompt_name": default_prompt_name}
    _write_json(folder / "config_sentence_transformers.json", {**st_config, "similarity_fn_name": "cosine"})
    return folder


def _pooling_config(pooling_mode: str | Sequence[str], include_prompt: bool, compact: bool) -> dict[str, Any]:
    modes = [pooling_mode] if isinstance(pooling_mode, str) else list(pooling_mode)
    if compact:
        mode = modes[0] if len(modes) == 1 else modes
        return {"embedding_dimension": HIDDEN_SIZE, "pooling_mode": mode, "include_prompt": include_prompt}
    switches = {key: mode in modes for mode, key in _OLD_POOLING_KEYS.items()}
    return {"word_embedding_dimension": HIDDEN_SIZE, **switches, "include_prompt": include_prompt}


def _write_dense(folder: Path, facts: TinyDense, *, seed: int) -> None:
    kind = {"Identity": "torch.nn.modules.linear.Identity"}.get(
        facts.activation, f"torch.nn.modules.activation.{facts.activation}"
    )
    sizes = {"in_features": facts.in_features, "out_features": facts.out_features, "bias": facts.bias}
    _write_json(folder / "config.json", {**sizes, "activation_function": kind})
    generator = torch.Generator().manual_seed(seed)
    weights = {"linear.weight": torch.randn(facts.out_features, facts.in_features, generator=generator) * 0.3}
    if facts.bias:
        weights["linear.bias"] = torch.randn(facts.out_features, generator=generator) * 0.3
    if facts.safetensors:
        save_file(weights, folder / "model.safetensors")
    else:
        torch.save(weights, folder / "pytorch_model.bin")


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))

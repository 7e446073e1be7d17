"""A `ModelSpec` for a tiny checkpoint whose parts follow its head, without asking `checkpoint/` to recognise it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cenote.checkpoint.families import family_of, is_causal
from cenote.checkpoint.spec import ClassifySpec, EmbedSpec, ModelSpec, SpladeSpec, TextSpec, TokenClassifySpec


def spec_of(folder: Path, **changes: Any) -> ModelSpec:
    """Read `config.json` of `folder`; the architecture's suffix decides the one part. `changes` replace fields."""
    config = json.loads((folder / "config.json").read_text())
    hidden = config[family_of(config["model_type"]).hidden_key]
    architecture = config["architectures"][0]
    fields: dict[str, Any] = {
        "name": folder.name,
        "folder": folder,
        "root": folder,
        "config": config,
        "model_type": config["model_type"],
        "architecture": architecture,
        "hidden_size": hidden,
        "vocab_size": config["vocab_size"],
        "is_causal": is_causal(config),
        "weight_files": (folder / "model.safetensors",),
        "text": TextSpec(tokenizer_folder=folder, max_length=64, max_length_reason="test"),
        **_part(architecture, config, hidden),
    }
    return ModelSpec(**{**fields, **changes})


def _part(architecture: str, config: dict[str, Any], hidden: int) -> dict[str, Any]:
    labels = tuple((config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}).values())
    common: dict[str, Any] = {"num_labels": len(labels), "labels": labels, "activation": "identity"}
    if architecture.endswith("ForSequenceClassification"):
        return {"classify": ClassifySpec(kind="classifier", **common)}
    if architecture.endswith("ForTokenClassification"):
        return {"token_classify": TokenClassifySpec(kind="token_labels", **common)}
    if architecture.endswith("ForMaskedLM"):
        return {"embed_sparse": SpladeSpec(pooling="max", vocab_size=config["vocab_size"])}
    if architecture.endswith("ForCausalLM"):
        score = {**common, "num_labels": 1, "labels": ("score",), "yes_token_id": 7, "no_token_id": 9}
        return {"classify": ClassifySpec(kind="llm_reranker", **score)}
    return {"embed": EmbedSpec(modes=("mean",), dimensions=hidden)}

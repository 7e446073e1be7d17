"""Loading tiny checkpoints, and the plain transformers run of one text that every number is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedModel

from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.checkpoint.spec import ClassifySpec
from cenote.models.batch import PackedBatch, pack
from cenote.models.load import LoadedModel, load_model
from tiny import FAMILIES, Head

CPU = torch.device("cpu")
LOWEST_TEXT_ID = 7
"""Ids from here up are no special tokens in any of the tiny vocabularies."""

_CHOICES = {"base": {"pooling": "mean"}, "causal_lm": {"pooling": "last"}, "masked_lm": {"task": "embed_sparse"}}


def tiny_spec(folder: Path, head: Head = "base") -> ModelSpec:
    """Read a tiny checkpoint; a causal model becomes a reranker between the tokens 41 and 43."""
    spec = read_checkpoint(folder, **_CHOICES.get(head, {}))
    if head != "causal_lm":
        return spec
    score = ClassifySpec(
        kind="llm_reranker",
        num_labels=1,
        labels=("relevance",),
        activation="sigmoid",
        yes_token_id=41,
        no_token_id=43,
    )
    return replace(spec, embed=None, classify=score)


def load_tiny(folder: Path, head: Head = "base", dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(tiny_spec(folder, head), dtype=dtype, device=CPU)


def plain_backbone(folder: Path, family: str) -> PreTrainedModel:
    """Load what transformers itself makes of the folder, with the attention that it calls eager."""
    cls = AutoModelForTextEncoding if FAMILIES[family].style == "t5" else AutoModel
    return cls.from_pretrained(folder, attn_implementation="eager", local_files_only=True).eval()


def random_texts(lengths: Sequence[int], *, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(LOWEST_TEXT_ID, 190, length).tolist() for length in lengths]


def pack_for(loaded: LoadedModel, texts: Sequence[Sequence[int]], **options: object) -> PackedBatch:
    return pack(texts, device=CPU, position_offset=loaded.position_offset, **options)  # type: ignore[arg-type]


def run_packed(loaded: LoadedModel, texts: Sequence[Sequence[int]], **options: object) -> list[torch.Tensor]:
    """Return the hidden states `[n, H]` of each text from one pack."""
    with torch.inference_mode():
        hidden = loaded.backbone(pack_for(loaded, texts, **options))
    return list(torch.split(hidden, [len(ids) for ids in texts]))


def run_plain(model: PreTrainedModel, ids: Sequence[int], **inputs: Sequence[int]) -> torch.Tensor:
    """Return the first output of plain transformers on one text: hidden states `[n, H]` or logits."""
    tensors = {name: torch.tensor([values]) for name, values in {"input_ids": ids, **inputs}.items()}
    with torch.inference_mode():
        output: torch.Tensor = model(**tensors)[0][0]
    return output

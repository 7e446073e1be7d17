"""Compare the packed run of a model with plain transformers: wrong numbers are refused, not served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from cenote.checkpoint.families import padding_idx
from cenote.checkpoint.spec import ModelSpec
from cenote.errors import CheckpointError
from cenote.models.batch import pack
from cenote.models.heads import SequenceClassifier
from cenote.models.load import LoadedModel

_LENGTHS = (3, 40, 17)
_FLOAT32_TOLERANCE = 2e-5
"""Times the largest reference value, or 1 if that is larger."""
_HALF_TOLERANCE = 1e-3
"""1 - cosine of a text's hidden states, all of its tokens as one vector."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was compared and how far off it was at most, in parts of what is allowed: 1 is the limit."""

    num_texts: int
    num_tokens: int
    worst: float
    what: str


@dataclass(frozen=True)
class _Text:
    token_ids: list[int]
    token_type_ids: list[int] | None


@torch.inference_mode()
def verify_model(loaded: LoadedModel, spec: ModelSpec) -> Verification:
    """Run three texts of made-up tokens packed, and one at a time as plain transformers does, on the same weights.

    Raises `CheckpointError` where hidden states differ by more than the tolerance: in fp32 2e-5 times the largest
    reference value, in half precision a cosine of 0.999 over each text; and likewise for a classifier's logits in fp32.
    """
    texts = _texts(loaded, spec)
    types = [text.token_type_ids for text in texts if text.token_type_ids is not None]
    batch = pack(
        [text.token_ids for text in texts],
        device=loaded.device,
        position_offset=loaded.position_offset,
        token_type_ids=types or None,
    )
    packed = torch.split(loaded.backbone(batch), batch.seq_lens_np.tolist())
    off: dict[str, float] = {}
    with _plain_attention(loaded.module):
        for text, hidden in zip(texts, packed, strict=True):
            for what, value in _compare(loaded, text, hidden).items():
                off[what] = max(value, off.get(what, 0.0))
    what, worst = max(off.items(), key=lambda item: item[1])
    if not worst <= 1.0:
        raise CheckpointError(
            f"{spec.name}: the packed run and plain transformers differ by {worst:.3g} times the tolerance in the "
            f"{what}, so it is not served; please report the architecture {spec.architecture} as a bug"
        )
    return Verification(num_texts=len(texts), num_tokens=batch.num_tokens, worst=worst, what=what)


def classify_one(classifier: SequenceClassifier, hidden_LH: torch.Tensor) -> torch.Tensor:
    """Return the logits `[1, C]` of one text from its hidden states, by the classifier's own rule."""
    hidden = hidden_LH.float()
    if classifier.token_module is not None:
        hidden = classifier.token_module(hidden)
    pooled = {"cls": hidden[:1], "last": hidden[-1:], "mean": hidden.mean(dim=0, keepdim=True)}[classifier.rows]
    logits: torch.Tensor = classifier.module(pooled)
    return logits


def _texts(loaded: LoadedModel, spec: ModelSpec) -> list[_Text]:
    """Make up token ids without the padding id, which RoBERTa's own positions would skip."""
    rng = np.random.default_rng(0)
    ids = np.setdiff1d(np.arange(spec.vocab_size), [padding_idx(spec.config)])
    texts = []
    for length in _LENGTHS:
        token_ids = rng.choice(ids, min(length, spec.text.max_length)).tolist()
        half = len(token_ids) // 2
        types = [0] * half + [1] * (len(token_ids) - half) if loaded.uses_token_types else None
        texts.append(_Text(token_ids, types))
    return texts


def _compare(loaded: LoadedModel, text: _Text, hidden_LH: torch.Tensor) -> dict[str, float]:
    """Return how far one text is off in parts of the tolerance, by what was compared."""
    inputs = {"input_ids": torch.tensor([text.token_ids], device=loaded.device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if text.token_type_ids is not None:
        inputs["token_type_ids"] = torch.tensor([text.token_type_ids], device=loaded.device)
    plain_LH = loaded.module.base_model(**inputs).last_hidden_state[0]
    if loaded.dtype != torch.float32:
        cosine = F.cosine_similarity(hidden_LH.flatten().double(), plain_LH.flatten().double(), dim=0)
        return {"hidden states": float(1 - cosine) / _HALF_TOLERANCE}
    off = {"hidden states": _float32_off(hidden_LH, plain_LH)}
    if loaded.classifier is not None and type(loaded.module).__name__.endswith("ForSequenceClassification"):
        logits = classify_one(loaded.classifier, hidden_LH)
        off["classifier's logits"] = _float32_off(logits, loaded.module(**inputs).logits)
    return off


def _float32_off(actual: torch.Tensor, plain: torch.Tensor) -> float:
    scale = max(1.0, float(plain.abs().max()))
    return float((actual - plain).abs().max()) / (_FLOAT32_TOLERANCE * scale)


@contextmanager
def _plain_attention(module: PreTrainedModel) -> Iterator[None]:
    """Let the same modules and weights run as transformers would without Cenote.

    This writes to configs that all steps of the model share: it is for the time before the first of them.
    """
    configs = {id(part.config): part.config for part in module.modules() if _has_config(part)}
    before = {key: config._attn_implementation for key, config in configs.items()}
    for config in configs.values():
        config._attn_implementation = "eager"
    try:
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


def _has_config(part: torch.nn.Module) -> bool:
    return isinstance(getattr(part, "config", None), PretrainedConfig)

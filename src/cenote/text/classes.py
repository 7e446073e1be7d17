"""Which tokenizer class of transformers reads a folder: the choice of `AutoTokenizer`, which itself imports torch.

The classes rebuild normaliser and pre-tokenizer from their own settings, so `tokenizer.json` alone does not always give
the checkpoint's ids. A test compares the table with the one in transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers

from cenote.errors import CheckpointError

GENERIC = "TokenizersBackend"
_UNSPECIFIC = frozenset({GENERIC, "PythonBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast"})

REGISTERED_CLASSES: dict[str, str] = {
    "albert": "AlbertTokenizer",
    "bert": "BertTokenizer",
    "big_bird": "BigBirdTokenizer",
    "camembert": "CamembertTokenizer",
    "convbert": "BertTokenizer",
    "deberta": "DebertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "ernie": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gte": "XLMRobertaTokenizer",
    "jina_embeddings_v3": "XLMRobertaTokenizer",
    "longformer": "RobertaTokenizer",
    "minicpm3": GENERIC,
    "mistral": GENERIC,
    "mobilebert": "MobileBertTokenizer",
    "modernbert": GENERIC,
    "modernbert-decoder": GENERIC,
    "mpnet": "MPNetTokenizer",
    "mt5": "T5Tokenizer",
    "nomic_bert": "BertTokenizer",
    "phi3": GENERIC,
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "t5gemma": "GemmaTokenizer",
    "umt5": GENERIC,
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlm-roberta-xl": GENERIC,
    "xmod": "XLMRobertaTokenizer",
}
"""`model_type` -> class. Mistral's entry is the one for folders without Mistral's own tokenizer format."""

WRONGLY_DECLARED = frozenset({"minicpm3", "modernbert", "modernbert-decoder", "phi3", "qwen2"})
"""Model types whose checkpoints name a wrong class in `tokenizer_config.json`; the table is followed instead."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a folder says. The class names may carry the old `Fast` ending."""

    model_type: str | None
    tokenizer_config_class: str | None
    config_class: str | None
    is_byte_level: bool
    """`tokenizer.json` mentions ByteLevel"""
    has_own_code: bool = False
    """`auto_map` names a tokenizer class in the checkpoint's own Python files"""


def choose_class(declared: Declaration) -> Any:
    """Return the class of transformers that `AutoTokenizer` would load the folder with, never the checkpoint's own."""
    registered = REGISTERED_CLASSES.get(declared.model_type or "")
    hub = declared.tokenizer_config_class or declared.config_class
    if declared.has_own_code and registered is None and _class((hub or "").removesuffix("Fast")) is None:
        raise CheckpointError(
            "the tokenizer is Python code of the checkpoint's own (auto_map), which is not run: save it with"
            " transformers as a tokenizer.json and set tokenizer_class to PreTrainedTokenizerFast"
        )
    if _is_byte_level_llama(declared, hub):
        return _class(GENERIC)
    if hub is None:
        return _class(registered or GENERIC)
    if registered is None or registered == hub.removesuffix("Fast"):
        return _specific(hub)
    if registered == GENERIC:
        return _class(GENERIC)
    return _specific(registered if declared.model_type in WRONGLY_DECLARED else hub)


def _is_byte_level_llama(declared: Declaration, hub: str | None) -> bool:
    if hub is None or hub.removesuffix("Fast") != "LlamaTokenizer" or declared.model_type == "mistral":
        return False
    return declared.is_byte_level and declared.model_type not in WRONGLY_DECLARED


def _specific(name: str) -> Any:
    if name in _UNSPECIFIC:
        return _class(GENERIC)
    return _class(name.removesuffix("Fast")) or _class(name) or _class(GENERIC)


def _class(name: str) -> Any:
    """Look up a tokenizer class; other names of transformers, which may import torch, are not touched."""
    return getattr(transformers, name, None) if name.endswith(("Tokenizer", "TokenizerFast", "Backend")) else None

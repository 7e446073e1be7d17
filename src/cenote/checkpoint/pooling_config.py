"""sentence-transformers' `Pooling` module, in the boolean form of old and the compact form of new releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cenote.checkpoint.modules import Module
from cenote.checkpoint.spec import PoolingMode
from cenote.config import as_option
from cenote.errors import CheckpointError

MODES: Mapping[str, PoolingMode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
"""sentence-transformers' names, in the fixed order in which it joins the vectors of several boolean modes."""

_BOOLEANS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def pooling_modes(module: Module) -> tuple[PoolingMode, ...]:
    """Return the modes whose vectors are joined, in joining order.

    The compact `pooling_mode` wins over the booleans and keeps its own order, as in sentence-transformers 6.
    """
    source = str(module.folder / "config.json")
    compact = module.config.get("pooling_mode")
    if compact is None:
        names = [name for key, name in _BOOLEANS.items() if module.config.get(key)]
    else:
        names = [compact] if isinstance(compact, str) else list(compact)
    unknown = [name for name in names if name not in MODES]
    if unknown:
        raise CheckpointError(f"{source} asks for the pooling {unknown[0]!r}; Cenote knows: {', '.join(MODES)}")
    if not names:
        raise CheckpointError(f"{source} names no pooling mode; say which with {as_option('pooling', *MODES.values())}")
    return tuple(MODES[name] for name in names)


def include_prompt(config: Mapping[str, Any]) -> bool:
    """Return whether the tokens of the prompt are pooled."""
    return config.get("include_prompt", True) is not False


def check_width(module: Module, hidden_size: int) -> None:
    """Refuse a Pooling module that was saved for another width than the backbone's."""
    config = module.config
    width = config.get("embedding_dimension") or config.get("word_embedding_dimension")
    if width is not None and width != hidden_size:
        raise CheckpointError(
            f"{module.folder / 'config.json'} pools {width} values, but the model gives {hidden_size}"
        )

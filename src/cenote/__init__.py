"""Cenote: an inference engine for pooling models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cenote.errors import (
    BusyError,
    CenoteError,
    CheckpointError,
    DeadlineError,
    DeviceMemoryError,
    EmptyInputError,
    EngineClosedError,
    EngineError,
    InputError,
    MediaTypeError,
    MissingExtraError,
    NonFiniteError,
    OptionError,
    OversizeError,
    SlowBodyError,
    TooLongError,
    UnknownModelError,
    UnsupportedTaskError,
)

if TYPE_CHECKING:
    from cenote.engine import AsyncEngine, Engine
    from cenote.outputs import Embeddings, Encoded, SparseVector, Usage
    from cenote.params import PoolingParams

__version__ = "0.1.0"

__all__ = [
    "AsyncEngine",
    "BusyError",
    "CenoteError",
    "CheckpointError",
    "DeadlineError",
    "DeviceMemoryError",
    "Embeddings",
    "EmptyInputError",
    "Encoded",
    "Engine",
    "EngineClosedError",
    "EngineError",
    "InputError",
    "MediaTypeError",
    "MissingExtraError",
    "NonFiniteError",
    "OptionError",
    "OversizeError",
    "PoolingParams",
    "SlowBodyError",
    "SparseVector",
    "TooLongError",
    "UnknownModelError",
    "UnsupportedTaskError",
    "Usage",
]


_HEAVY = {
    "AsyncEngine": "cenote.engine",
    "Embeddings": "cenote.outputs",
    "Encoded": "cenote.outputs",
    "Engine": "cenote.engine",
    "PoolingParams": "cenote.params",
    "SparseVector": "cenote.outputs",
    "Usage": "cenote.outputs",
}
"""Names whose modules import torch or numpy; they are imported when they are asked for, so that `--help` is quick."""


def __getattr__(name: str) -> Any:
    if name in _HEAVY:
        return getattr(importlib.import_module(_HEAVY[name]), name)
    raise AttributeError(f"module 'cenote' has no attribute {name!r}")

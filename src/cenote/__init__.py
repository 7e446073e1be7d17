"""Cenote: an inference engine for pooling models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cenote.errors import (
    BusyError,
    CenoteError,
    CheckpointError,
    DeadlineError,
    DeviceMemoryError,
    EngineClosedError,
    EngineError,
    InputError,
    MediaTypeError,
    MissingExtraError,
    NonFiniteError,
    OptionError,
    OversizeError,
    TooLongError,
    UnknownModelError,
    UnsupportedTaskError,
)
from cenote.outputs import Embeddings, Encoded, SparseVector, Usage
from cenote.params import PoolingParams

if TYPE_CHECKING:
    from cenote.engine import AsyncEngine, Engine

__version__ = "0.1.0"

__all__ = [
    "AsyncEngine",
    "BusyError",
    "CenoteError",
    "CheckpointError",
    "DeadlineError",
    "DeviceMemoryError",
    "Embeddings",
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
    "SparseVector",
    "TooLongError",
    "UnknownModelError",
    "UnsupportedTaskError",
    "Usage",
]


def __getattr__(name: str) -> Any:
    """Import the engine, and torch with it, only when it is asked for."""
    if name in {"Engine", "AsyncEngine"}:
        from cenote import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'cenote' has no attribute {name!r}")

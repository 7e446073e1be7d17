"""Vectors on the wire, from numpy to bytes without a Python list of numbers."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import orjson

from cenote.outputs import Float32Array


def float_rows(values: Float32Array) -> list[Float32Array]:
    """Return the rows of `(n, D)` for `to_json`."""
    return list(np.ascontiguousarray(values, dtype=np.float32).view(np.ndarray))


def base64_rows(values: Float32Array) -> list[str]:
    """Return each row of `(n, D)` as base64 of its little-endian float32 bytes."""
    return [base64.b64encode(row).decode("ascii") for row in np.ascontiguousarray(values, dtype="<f4")]


def to_json(value: Any) -> bytes:
    """Return `value` as JSON; numpy arrays may be anywhere in it."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)

"""Vectors on the wire: numbers, bytes or bits, from numpy to JSON without a Python list of numbers."""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cenote.errors import InputError

EncodingName = Literal["float", "base64", "float16", "int8", "uint8", "binary", "ubinary"]
VectorType = Literal["float", "float16", "int8", "uint8", "binary", "ubinary"]
ENCODING_NAMES: tuple[EncodingName, ...] = get_args(EncodingName)

Endianness = Literal["native", "little", "big"]
ByteOrder = Literal["little", "big"]

Vectors = npt.NDArray[Any]
Row = npt.NDArray[Any] | str

_INT8_SCALE = 127
_UNIT_MAX = 1 + 1e-4
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True, slots=True)
class Encoding:
    """How vectors are written: the type of their values, as JSON numbers or as base64 of their bytes in some order."""

    type: VectorType = "float"
    base64: bool = False
    order: ByteOrder = "little"

    @classmethod
    def named(cls, name: EncodingName | None) -> Encoding:
        """Return the encoding of a name; none is `float`, and `base64` is that of float32."""
        return cls(base64=True) if name == "base64" else cls(type=name or "float")

    def verify(self, width: int, param: str) -> None:
        """Raise `InputError` about the field `param` where vectors of `width` values cannot be written so."""
        if self.type in ("binary", "ubinary") and width % 8:
            raise InputError(
                f"{param} {self.type} packs 8 values into a byte, and {width} dimensions do not fill whole bytes: "
                "ask for a multiple of 8, or for another type",
                param=param,
            )

    def rows(self, vectors: Vectors, param: str) -> list[Row]:
        """Return each vector of `(n, D)`, for `to_json`. Raises `InputError` as `verify` and `quantized` do."""
        self.verify(vectors.shape[-1], param)
        typed = np.ascontiguousarray(quantized(vectors, self.type, param))
        if not self.base64:
            return list(typed)
        ordered = typed.astype(typed.dtype.newbyteorder(self.order), copy=False)
        return [base64.b64encode(row).decode("ascii") for row in ordered]


def byte_order(name: Endianness | None) -> ByteOrder:
    """Return the byte order that vLLM's field `endianness` means; the machine's own where it is absent."""
    return sys.byteorder if name is None or name == "native" else name


def quantized(vectors: Vectors, kind: VectorType, param: str) -> Vectors:
    """Return `(n, D)` as values of another type, or `(n, D / 8)` for bits.

    `int8` is `round(127 x)` and `uint8` that plus 128, a fixed scale for unit vectors; `InputError` about the field
    `param` where a value is outside of it. A bit is `x >= 0`, eight to a byte, the first in the highest place, as
    `ubinary`; `binary` is that minus 128, as in sentence-transformers' `quantize_embeddings`, whose bit is `x > 0`.
    """
    vectors = np.asarray(vectors)
    if kind == "float":
        return vectors.astype(np.float32, copy=False)
    if kind == "float16":
        _check_range(vectors, _FLOAT16_MAX, kind, param)
        return vectors.astype(np.float16, copy=False)
    if kind in ("int8", "uint8"):
        return _scaled(vectors, kind, param)
    packed = np.packbits(vectors >= 0, axis=-1)
    return packed if kind == "ubinary" else (packed ^ 0x80).view(np.int8)  # flipping the top bit subtracts 128


def _scaled(vectors: Vectors, kind: VectorType, param: str) -> Vectors:
    _check_range(vectors, _UNIT_MAX, kind, param)
    whole = np.rint(vectors * np.float32(_INT8_SCALE)).clip(-_INT8_SCALE, _INT8_SCALE)
    return whole.astype(np.int8) if kind == "int8" else (whole + 128).astype(np.uint8)


def _check_range(vectors: Vectors, largest: float, kind: VectorType, param: str) -> None:
    if vectors.size and np.abs(vectors).max() > largest:
        raise InputError(
            f"{param} {kind} holds values up to {largest:.0f}, and these vectors, which are not normalised, have "
            "larger ones: ask for normalised vectors or for another type",
            param=param,
        )

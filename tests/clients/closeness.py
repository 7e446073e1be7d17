"""How close a client's vectors must be to the reference: Cenote's own tolerance for unit vectors in fp32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UNIT_TOLERANCE = 1e-5
Vectors = npt.ArrayLike


def assert_close(found: Vectors, expected: Vectors) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=UNIT_TOLERANCE)


def assert_ranked(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    """Compare `(index, score)` of a ranking, the best one first."""
    assert [index for index, _ in found] == [index for index, _ in expected]
    assert_close([score for _, score in found], [score for _, score in expected])


def bits_of(vectors: Vectors) -> npt.NDArray[np.uint8]:
    """Return the packed signs `[n, D / 8]`, the first value in the highest bit."""
    return np.packbits(np.asarray(vectors) >= 0, axis=-1)


def int8_of(vectors: Vectors) -> npt.NDArray[np.int8]:
    """Return unit vectors on the fixed scale of 127."""
    return np.round(np.asarray(vectors, dtype=np.float32) * 127).astype(np.int8)

"""The vectors of a long text's blocks to the vector of the text, on the host: they come from several steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cenote.outputs import Float32Array

EPSILON = 1e-12
"""As in the L2 of the embedding head: a vector of zeros stays zero."""


def mean_of_blocks(
    vectors: Sequence[npt.NDArray[np.float32]], weights: Sequence[int], *, normalize: bool
) -> Float32Array:
    """Return `[D]`: the fp32 mean of the `vectors`, each weighing `weights`, then L2 where `normalize`.

    A single vector comes back as it is.
    """
    if len(vectors) == 1:
        return vectors[0]
    parts = np.asarray(weights, dtype=np.float32) / np.float32(sum(weights))
    mean: Float32Array = parts @ np.stack(vectors)
    return mean / np.maximum(np.linalg.norm(mean), np.float32(EPSILON)) if normalize else mean

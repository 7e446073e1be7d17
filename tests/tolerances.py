"""The one tolerance table: how far fp32 on the CPU may be from its reference."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

Kind = Literal["unit", "raw", "chunked"]
Values = torch.Tensor | npt.NDArray[np.floating] | list[float]
_RELATIVE: dict[Kind, float] = {"unit": 1e-5, "raw": 2e-5, "chunked": 1e-4}


def assert_close(actual: Values, reference: Values, kind: Kind = "unit") -> None:
    """Compare with `reference`: shapes equal, nothing but finite numbers, the largest difference within the table.

    `unit`: unit vectors and probabilities, 1e-5 absolute. `raw`: logits and hidden states, 2e-5 x max(1, largest
    reference value). `chunked`: a text run in chunks against the same text run whole, 1e-4 on the same scale.
    """
    got, want = _float64(actual), _float64(reference)
    assert got.shape == want.shape, f"shape {got.shape}, reference {want.shape}"
    if want.size == 0:
        return
    assert np.isfinite(got).all(), "the values are not all finite"
    scale = 1.0 if kind == "unit" else max(1.0, float(np.abs(want).max()))
    off = float(np.abs(got - want).max())
    limit = _RELATIVE[kind] * scale
    assert off <= limit, f"off by {off:.3g}, allowed {limit:.3g} ({kind})"


def _float64(values: Values) -> npt.NDArray[np.float64]:
    if isinstance(values, torch.Tensor):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values, dtype=np.float64)

"""What each row of a step asks of a head, as masks that the host builds.

Sequences of one step may ask for different things; the number of device operations does not grow with the number of
wishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cenote.errors import EngineError
from cenote.params import PoolingParams
from cenote.pooling.metadata import IntArray
from cenote.transfer import async_tensor_h2d


@dataclass(frozen=True)
class RowOptions:
    """What each row asks for: its width and whether the last step is on. One entry for each row."""

    dimensions_np: IntArray
    use_activation_np: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, params: Sequence[PoolingParams], dimensions: int, use_activation: bool) -> RowOptions:
        """Read the params, filling in what the checkpoint asks for."""
        widths = [dimensions if p.dimensions is None else p.dimensions for p in params]
        active = [use_activation if p.use_activation is None else p.use_activation for p in params]
        return cls(np.array(widths, dtype=np.int64), np.array(active, dtype=np.bool_))

    def repeated(self, counts: Sequence[int]) -> RowOptions:
        """Return the options of each sequence's rows: `counts` of them."""
        return RowOptions(np.repeat(self.dimensions_np, counts), np.repeat(self.use_activation_np, counts))

    def uniform_dimensions(self) -> int | None:
        """Return the width that all rows ask for, `None` where they differ or there are none."""
        first = self.dimensions_np[:1]
        return int(first[0]) if len(first) and bool((self.dimensions_np == first).all()) else None

    def cut(self, rows_ND: torch.Tensor) -> torch.Tensor:
        """Cut the rows to their common width; where they differ set the values behind each one's width to zero."""
        if (width := self.uniform_dimensions()) is not None:
            return rows_ND if width == rows_ND.shape[1] else rows_ND[:, :width]
        if not len(self.dimensions_np):
            return rows_ND
        widths_N1 = async_tensor_h2d(self.dimensions_np, rows_ND.device).unsqueeze(1)
        kept_ND = torch.arange(rows_ND.shape[1], device=rows_ND.device) < widths_N1
        return torch.where(kept_ND, rows_ND, 0.0)

    def activate(self, activation: nn.Module, rows_ND: torch.Tensor) -> torch.Tensor:
        """Apply the last step to the rows that want it."""
        if self.use_activation_np.all():
            return activation(rows_ND)  # type: ignore[no-any-return]
        if not self.use_activation_np.any():
            return rows_ND
        wanted_N1 = async_tensor_h2d(self.use_activation_np, rows_ND.device).unsqueeze(1)
        return torch.where(wanted_N1, activation(rows_ND), rows_ND)

    def check_length(self, num_outputs: int) -> None:
        """Raise `EngineError` where there are not as many pooled outputs as params."""
        if num_outputs != len(self.dimensions_np):
            raise EngineError(f"{num_outputs} pooled outputs for {len(self.dimensions_np)} sequences")

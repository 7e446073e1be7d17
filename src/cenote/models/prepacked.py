"""Linear layers on a CPU with their weights laid out once, in the order in which oneDNN's products read them.

A plain product lays its weights out anew in every call, which short steps feel most. The residual is added inside the
products; GELU is not, since oneDNN's takes five times as long as torch's own. Shape suffixes: I inputs, O outputs.
"""

from __future__ import annotations

import torch
from torch import nn


class PrepackedLinear(nn.Module):
    """Rows `[..., I]` to `[..., O]` in fp32: the numbers of `linear`, which can be let go, in another order of sums."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return outputs

    def add_to(self, residual: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return `residual + linear(rows)`."""
        sums: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self._weight, self._bias, "add")
        return sums


def can_prepack(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether this torch has the products for such weights."""
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]

"""Linear layers in int8 on a CPU: weights quantised for each output channel, activations for each token.

A token's scale is found from its own row only, so a text's numbers do not depend on what runs beside it. The integer
products are oneDNN's, through torch; no compiler and no calibration set are needed. Shape suffixes: N rows, I inputs,
O outputs.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import nn

from cenote.errors import OptionError

_FULL_WEIGHT_STEPS, _SAFE_WEIGHT_STEPS = 127, 63
_ACTIVATION_STEPS = 254
"""One less than eight bits have: the smallest and the largest value may be rounded away from each other."""
_ROUNDING = 1.5 * 2**23
"""Added to a small float32 number it leaves the nearest whole one in the lowest bits of the sum."""
_SMALLEST_RANGE = 1e-30
_GROUP_INPUTS = 1024
"""Most inputs for one scale of 7-bit weights: the smallest cosine of a sentence of all-MiniLM-L6-v2 is 0.987 with two
scales and 0.976 with one for the 1,536 inputs of its down-projections. Each costs a pass over the outputs."""


class Int8Linear(nn.Module):
    """Rows `[..., I]` to `[..., O]` in fp32: `linear` with its weights, and every row, rounded to whole numbers.

    A weight is `s_channel * q` with `q` up to `weight_steps()`, an activation `offset + s_row * q` with `q` from 0 to
    255, so that `y = s_row * s_channel * (q_row . q_channel) + offset * (sum of the channel) + bias`. Where weights
    have 7 bits only, a channel of many inputs is cut into groups with a scale of their own, whose products are added.
    """

    bias: torch.Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._group_size = _group_size(self.in_features)
        self.groups = [_Group(part) for part in torch.split(linear.weight, self._group_size, dim=1)]
        self.sums_O = torch.stack([group.sums_O for group in self.groups]).sum(dim=0)
        self.bias = torch.zeros_like(self.sums_O) if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs_NO = self._multiply(*quantize_rows(rows.reshape(-1, self.in_features)))
        return outputs_NO.view(*rows.shape[:-1], self.out_features)

    def add_to(self, residual_NO: torch.Tensor, rows_NI: torch.Tensor) -> torch.Tensor:
        """Return `residual + linear(rows)`; both may be overwritten."""
        return residual_NO.add_(self._multiply(*quantize_rows(rows_NI, in_place=True)))

    def _multiply(self, whole_NI: torch.Tensor, scale_N1: torch.Tensor, offset_N1: torch.Tensor) -> torch.Tensor:
        (group, first), *others = zip(self.groups, torch.split(whole_NI, self._group_size, dim=1), strict=True)
        products_NO = group(first)
        for group, part in others:
            products_NO += group(part)
        torch.addcmul(self.bias, products_NO, scale_N1, out=products_NO)
        return products_NO.addr_(offset_N1[:, 0], self.sums_O)


class _Group:
    """Some inputs of a layer: whole rows `[N, i]` to fp32 `[N, O]`, each output multiplied by its channel's scale."""

    def __init__(self, weight_OI: torch.Tensor) -> None:
        scales_O = weight_OI.abs().amax(dim=1).clamp_min(_SMALLEST_RANGE) / weight_steps()
        whole_OI = torch.round(weight_OI / scales_O[:, None]).to(torch.int8)
        self.sums_O = whole_OI.sum(dim=1) * scales_O
        self._packed = torch.ops.onednn.qlinear_prepack(whole_OI.contiguous(), None)
        self._scales_O = scales_O
        self._zeros_O = torch.zeros_like(scales_O, dtype=torch.int64)

    def __call__(self, whole_NI: torch.Tensor) -> torch.Tensor:
        return _multiply(whole_NI.to(torch.uint8), self._packed, self._scales_O, self._zeros_O)


def quantize_rows(rows_NI: torch.Tensor, *, in_place: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return every row as whole numbers `q` in the lowest eight bits of int32, its scale and its offset `[N, 1]`.

    `row = offset + scale * q` to half a step, and zero is exact. Written in few passes over the rows, in operations
    that torch has vectorised; the direct ones take up to ten times as long.
    """
    smallest_N1 = rows_NI.amin(dim=1, keepdim=True).clamp_max_(0)
    largest_N1 = rows_NI.amax(dim=1, keepdim=True).clamp_min_(_SMALLEST_RANGE)
    scale_N1 = largest_N1.sub_(smallest_N1).div_(_ACTIVATION_STEPS)
    inverse_N1 = scale_N1.reciprocal()
    first_N1 = smallest_N1.mul_(inverse_N1).round_()  # as the rows are: a quotient may round otherwise
    steps_NI = torch.mul(rows_NI, inverse_N1, out=rows_NI if in_place else None)
    return steps_NI.add_(_ROUNDING - first_N1).view(torch.int32), scale_N1, first_N1.mul_(scale_N1)


def _group_size(num_inputs: int) -> int:
    """Return the inputs of each group, all of one size where that is possible."""
    if weight_steps() == _FULL_WEIGHT_STEPS:
        return num_inputs
    return math.ceil(num_inputs / math.ceil(num_inputs / _GROUP_INPUTS))


@functools.cache
def weight_steps() -> int:
    """Return the largest whole number that a weight may be on this processor: 127, or 63 without VNNI.

    Tried out rather than read from the processor's flags: where two neighbouring products are added in 16 bits, the
    largest ones overflow without a word.
    """
    rows = torch.full((64, 64), 255, dtype=torch.uint8)
    weights = torch.full((64, 64), _FULL_WEIGHT_STEPS, dtype=torch.int8)
    zeros = torch.zeros(64, dtype=torch.int64)
    products = _multiply(rows, torch.ops.onednn.qlinear_prepack(weights, None), torch.ones(64), zeros)
    exact = bool((products == 64 * 255 * _FULL_WEIGHT_STEPS).all())
    return _FULL_WEIGHT_STEPS if exact else _SAFE_WEIGHT_STEPS


def check_supported() -> None:
    """Raise `OptionError` where this torch has no integer products."""
    if "onednn" not in torch.backends.quantized.supported_engines:
        raise OptionError("dtype int8 needs a torch with oneDNN's int8 products, which this one has not; use float32")


def _multiply(
    rows_NI: torch.Tensor, packed: torch.Tensor, scales_O: torch.Tensor, zeros_O: torch.Tensor
) -> torch.Tensor:
    """Return the products of whole numbers, each output multiplied by its channel's scale, in fp32."""
    no_bias = None
    products_NO: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
        rows_NI, 1.0, 0, packed, scales_O, zeros_O, no_bias, 1.0, 0, torch.float32, "none", [], ""
    )
    return products_NO

"""Which attention kernel a model runs on, chosen once at load, with the reason that `cenote inspect` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

PathName = Literal["varlen", "runs", "padded"]
_FLASH_CAPABILITY = (8, 0)
_FLASH_MAX_HEAD_DIM = 256


@dataclass(frozen=True, kw_only=True)
class AttentionPath:
    """`varlen`: one fused kernel over the whole pack. `runs`: scaled dot product attention over neighbours of equal
    length. `padded`: sub-batches of near-equal length through the model's own attention.
    """

    path: PathName
    reason: str


@dataclass(frozen=True, kw_only=True)
class AttentionNeeds:
    """What a model's attention asks of a kernel, and where it is to run."""

    device_type: str
    dtype: torch.dtype
    capability: tuple[int, int] | None
    """CUDA compute capability; `None` elsewhere"""
    head_dim: int
    softcap: bool = False
    bias: bool = False
    padded: bool = False
    """The architecture computes attention by itself and runs padded."""


def choose_attention(needs: AttentionNeeds) -> AttentionPath:
    """Choose the fastest path that gives right numbers."""
    if needs.padded:
        return AttentionPath(path="padded", reason="the architecture's own attention knows no packs")
    obstacle = _varlen_obstacle(needs)
    if obstacle is None:
        return AttentionPath(path="varlen", reason="half precision on a card with flash attention")
    return AttentionPath(path="runs", reason=obstacle)


def _varlen_obstacle(needs: AttentionNeeds) -> str | None:
    if needs.capability is None:
        return f"the device is {needs.device_type}"
    if needs.dtype not in (torch.float16, torch.bfloat16):
        return f"the variable-length kernel needs half precision, not {str(needs.dtype).removeprefix('torch.')}"
    if needs.capability < _FLASH_CAPABILITY:
        major, minor = needs.capability
        return f"the variable-length kernel needs compute capability 8.0, the card has {major}.{minor}"
    if needs.softcap:
        return "the model caps its attention logits, which the variable-length kernel does not"
    if needs.bias:
        return "the model adds a position bias, which the variable-length kernel does not"
    if needs.head_dim > _FLASH_MAX_HEAD_DIM or needs.head_dim % 8:
        return f"the variable-length kernel takes head sizes up to 256 in steps of 8, not {needs.head_dim}"
    return None


def device_capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability; `meta` stands in for a current card, so that an audit sees the card's path."""
    if device.type == "meta":
        return (9, 0)
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None

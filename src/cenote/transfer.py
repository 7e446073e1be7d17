"""The one way from the host to the device: staged, pinned where it matters, never blocking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

_MARK = "stands_for_pinned"
HostData = torch.Tensor | npt.NDArray[np.generic] | Sequence[int]


def async_tensor_h2d(data: HostData, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Copy host `data` to `device` without making either side wait for the other.

    The copy starts from contiguous page-locked memory, since the driver blocks in silence on anything else. PyTorch's
    host allocator keeps that memory until the copy has run, so the caller may drop it at once. On the CPU nothing is
    copied that need not be.
    """
    host = _host_tensor(data)
    if dtype is not None:
        host = host.to(dtype)
    if device.type == "cpu":
        return host
    return pin(host.contiguous(), device).to(device, non_blocking=True)


def pin(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return `host` in page-locked memory where copies to `device` need it; on `meta`, which has none, marked so."""
    if device.type == "cuda":
        return host.pin_memory()
    return mark_pinned(host.clone()) if device.type == "meta" else host


def mark_pinned(host: torch.Tensor) -> torch.Tensor:
    """Let the memory of `host` count as page-locked for `is_pinned`: the audit's stand-in for what it cannot have."""
    setattr(host.untyped_storage(), _MARK, True)
    return host


def is_pinned(host: torch.Tensor) -> bool:
    """Return whether `host` lies in page-locked memory, or in memory that stands for it."""
    return hasattr(host.untyped_storage(), _MARK) or host.is_pinned()


def _host_tensor(data: HostData) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, np.ndarray):
        return torch.from_numpy(data)
    return torch.tensor(data)

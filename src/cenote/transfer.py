"""The one way from the host to the device: staged, pinned where it matters, never blocking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

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
    """Return `host` in page-locked memory where copies to `device` need it."""
    return host.pin_memory() if device.type == "cuda" else host


def _host_tensor(data: HostData) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, np.ndarray):
        return torch.from_numpy(data)
    return torch.tensor(data)

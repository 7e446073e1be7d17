"""The audit's stand-in for an accelerator: PyTorch's `meta` device, which has shapes and no values."""

from __future__ import annotations

import torch

from cenote.runtime.device import Event, Passed
from cenote.transfer import mark_pinned


class MetaDevice:
    """Runs the steps of a GPU without one. What comes back is zeros of the right size.

    `copies_to_host` lists the dtype of every copy back: the one way on which a step may leave the device.
    """

    steps_in_flight = 2

    def __init__(self) -> None:
        self.torch_device = torch.device("meta")
        self.copies_to_host: list[torch.dtype] = []

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return mark_pinned(torch.empty(size, dtype=dtype))

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.torch_device, non_blocking=True)

    def record(self) -> Event:
        return Passed()

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        self.copies_to_host.append(source.dtype)
        return torch.zeros(source.shape, dtype=source.dtype), Passed()

"""What the runtime needs of a device: host memory that copies quickly, copies that do not block, events to wait for.

Nothing outside this file and `cenote.transfer` moves data between the host and a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from cenote.checkpoint.decide import DeviceFacts
from cenote.errors import OptionError


class Event(Protocol):
    """A point in the device's work."""

    def wait(self) -> None:
        """Block the calling thread until the device has come here."""

    def passed(self) -> bool:
        """Return whether the device has come here, without waiting."""


class Device(Protocol):
    """One accelerator, or the CPU, as the runner sees it."""

    torch_device: torch.device
    steps_in_flight: int
    """How many steps may be launched before the first is waited for."""

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a 1-D host tensor from which and to which copies do not block."""

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        """Start a copy of `host`, made by `host_buffer`, to the device."""

    def record(self) -> Event:
        """Return an event at the end of all work launched so far."""

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        """Start a copy of `source` to the host beside the compute work; valid once the event is waited for."""


class Passed:
    """The event of a device that does its work before it returns."""

    def wait(self) -> None:
        return None

    def passed(self) -> bool:
        return True


class CpuDevice:
    """The CPU: copies are no-ops, work is done when the call returns."""

    steps_in_flight = 1

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype)

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        return host

    def record(self) -> Event:
        return Passed()

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        return source, Passed()


class CudaEvent:
    """A CUDA event whose wait lets other threads run."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._event.record(stream)

    def wait(self) -> None:
        self._event.synchronize()

    def passed(self) -> bool:
        done: bool = self._event.query()  # type: ignore[no-untyped-call]
        return done


class CudaDevice:
    """An NVIDIA GPU: pinned host memory, results copied on a stream of their own."""

    steps_in_flight = 2

    def __init__(self, name: str) -> None:
        self.torch_device = torch.device(name)
        self._copy_stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._graph_memory = torch.cuda.graph_pool_handle()

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=True)

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.torch_device, non_blocking=True)

    def record(self) -> Event:
        return CudaEvent(torch.cuda.current_stream(self.torch_device))

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        self._copy_stream.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(self._copy_stream):
            target = self.host_buffer(source.numel(), source.dtype)
            target.copy_(source, non_blocking=True)
        source.record_stream(self._copy_stream)
        return target, CudaEvent(self._copy_stream)

    def capture(self, run: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Callable[[], None]]:
        """Record what `run` launches as a CUDA graph; return the tensor that it fills, and the replay."""
        stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(stream):
            run()  # libraries set themselves up on their first call, which a recording must not hold
        torch.cuda.current_stream(self.torch_device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._graph_memory):
            output = run()
        return output, graph.replay


def device_facts(asked: str) -> DeviceFacts:
    """Find out what the device `asked` for is; `auto` takes the first GPU and else the CPU."""
    if asked == "auto":
        found = torch.cuda.is_available()
        reason = "a GPU was found" if found else "no GPU was found"
        return _facts("cuda:0" if found else "cpu", reason)
    return _facts(asked, "asked for")


def _facts(name: str, reason: str) -> DeviceFacts:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"device {name!r} is not one of auto, cpu, cuda, cuda:N") from error
    if device.type == "cpu":
        amx = torch.cpu._is_amx_tile_supported()
        return DeviceFacts(kind="cpu", name="cpu", description="CPU", bfloat16=amx, reason=reason, amx=amx)
    if device.type != "cuda":
        raise OptionError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    index = device.index or 0
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise OptionError(f"device {name!r} was asked for, but torch finds {torch.cuda.device_count()} CUDA devices")
    return DeviceFacts(
        kind="cuda",
        name=f"cuda:{index}",
        description=torch.cuda.get_device_name(index),
        bfloat16=torch.cuda.get_device_capability(index) >= (8, 0),
        reason=reason,
    )


def open_device(facts: DeviceFacts) -> Device:
    """Return the device that `facts` describe."""
    return CpuDevice() if facts.kind == "cpu" else CudaDevice(facts.name)

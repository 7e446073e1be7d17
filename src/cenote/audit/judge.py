"""Would this operation make the device and the host wait for each other? From its name and its arguments alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from cenote.audit.clean import CleanOps
from cenote.audit.finding import Kind
from cenote.transfer import is_pinned

_INDEXED = frozenset({"index.Tensor", "_unsafe_index.Tensor"})
_COPIES = frozenset({"_to_copy.default", "copy_.default"})


@dataclass(frozen=True)
class Verdict:
    """What is wrong with an operation."""

    kind: Kind
    detail: str = ""


@dataclass(frozen=True)
class Judge:
    """Judges the operations on one kind of accelerator, `meta` or `cuda`."""

    accelerator: str
    clean_ops: CleanOps

    def touches_device(self, args: Any, kwargs: dict[str, Any]) -> bool:
        """Return whether an operation has anything to do with the accelerator."""
        asked = kwargs.get("device")
        on_asked = asked is not None and torch.device(asked).type == self.accelerator
        return on_asked or any(self.on_device(each) for each in tensors_in((args, list(kwargs.values()))))

    def on_device(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == self.accelerator

    def is_listed(self, func: Any) -> bool:
        """Return whether an operation is on the list as a whole, whatever it is made of."""
        return op_name(func) in self.clean_ops.names

    def judge(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Verdict | None:
        """Return what is wrong with an operation that touches the device, `None` if it is known to be clean."""
        name = op_name(func)
        if name in _COPIES:
            return self._copy(name, args, kwargs)
        if name in _INDEXED or name.startswith("index_put"):
            return self._index(name, args)
        if torch.Tag.data_dependent_output in func.tags:
            return Verdict("reads_value")
        if torch.Tag.dynamic_output_shape in func.tags and kwargs.get("output_size") is None:
            return Verdict("unknown_size")
        return self._other(name, args, kwargs)

    def _copy(self, name: str, args: Any, kwargs: dict[str, Any]) -> Verdict | None:
        if name == "copy_.default":
            target_on_device, source = self.on_device(args[0]), args[1]
            non_blocking = bool(args[2]) if len(args) > 2 else bool(kwargs.get("non_blocking"))
        else:
            source, device = args[0], kwargs.get("device")
            target_on_device = self.on_device(source) if device is None else device.type == self.accelerator
            non_blocking = bool(kwargs.get("non_blocking"))
        if self.on_device(source):
            return None if target_on_device else Verdict("copy_to_host")
        if name == "copy_.default" and source.dim() == 0:
            return None  # the value is a kernel's argument: x[0] = 1.0
        if not non_blocking:
            return Verdict("blocking_copy")
        return None if is_pinned(source) and source.is_contiguous() else Verdict("pageable_copy")

    def _index(self, name: str, args: Any) -> Verdict | None:
        indices = [each for each in args[1] if each is not None]
        if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            return Verdict("unknown_size", "a boolean mask")
        if not all(self.on_device(each) for each in indices):
            return Verdict("host_index")
        if name.startswith("index_put") and not self.on_device(args[2]):
            return Verdict("host_tensor", "the values that are put")
        return None

    def _other(self, name: str, args: Any, kwargs: dict[str, Any]) -> Verdict | None:
        if name not in self.clean_ops.names:
            return Verdict("unverified", name)
        if name in self.clean_ops.only_shapes:
            return None
        for each in tensors_in((args, list(kwargs.values()))):
            takes_value = each.dim() == 0 and name in self.clean_ops.takes_host_scalars
            if not self.on_device(each) and not takes_value:
                return Verdict("host_tensor", f"shape {tuple(each.shape)}")
        return None


def op_name(func: Any) -> str:
    """Return the name of an operation, without `aten`'s namespace: `add.Tensor`."""
    return str(func).removeprefix("aten.")


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)

"""Tensors that know their shape at once and their value later: what tensors on a GPU are to the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import torch

_META = torch.device("meta")


class WorkQueue:
    """Work in the order of its launch, as on a CUDA stream. `shapes` remembers what operations return."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self.num_done = 0
        self.shapes: dict[Hashable, Any] = {}

    @property
    def num_launched(self) -> int:
        return self.num_done + len(self._work)

    def launch(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    @torch.inference_mode()
    def run_to(self, position: int) -> None:
        """Do the work up to the one launched as number `position`."""
        while self.num_done < position:
            self._work.popleft()()
            self.num_done += 1


class LateTensor(torch.Tensor):
    """A tensor whose operations are queued. `shape_only` lies on `meta` and gives the shape; `value` comes later.

    The operations are those of the CPU. Asking for a value on the host raises, as there is none on `meta`.
    """

    shape_only: torch.Tensor
    value: torch.Tensor
    queue: WorkQueue

    @staticmethod
    def __new__(cls, shape_only: torch.Tensor, queue: WorkQueue) -> LateTensor:
        made: LateTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            shape_only.shape,
            strides=shape_only.stride(),
            storage_offset=shape_only.storage_offset(),
            dtype=shape_only.dtype,
            device=torch.device("cpu"),
        )
        made.shape_only = shape_only
        made.queue = queue
        return made

    def __init__(self, shape_only: torch.Tensor, queue: WorkQueue) -> None:
        """Everything is set by `__new__`, as PyTorch asks of tensors."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Work out the shapes now, and queue the operation."""
        call = (args, kwargs or {})
        late: dict[int, LateTensor] = {}
        _map(lambda each: late.update({id(each.shape_only): each}) if isinstance(each, LateTensor) else None, call)
        if func._schema.is_mutable and not isinstance(args[0], LateTensor):
            raise RuntimeError(f"{func} would write to host memory later than the host expects")
        queue = next(iter(late.values())).queue
        result = _result_shapes(queue, func, call)
        outputs = _map(lambda each: late.get(id(each)) if id(each) in late else _new(each, queue), result)

        def work() -> None:
            real_args, real_kwargs = _map(_value, call)
            _fill(outputs, func(*real_args, **real_kwargs))

        queue.launch(work)
        return outputs


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Return `value` with `function` applied to everything in its tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        return type(value)([_map(function, each) for each in value])
    if isinstance(value, dict):
        return {key: _map(function, each) for key, each in value.items()}
    return function(value)


def _result_shapes(queue: WorkQueue, func: Any, call: Any) -> Any:
    """Return what `func` gives on `meta`. What makes new tensors is remembered by its inputs; views are made anew."""
    if any(each.alias_info is not None for each in func._schema.returns):
        shape_args, shape_kwargs = _map(_shape_only, call)
        return func(*shape_args, **shape_kwargs)
    key = (func, _key(call))
    if key not in queue.shapes:
        shape_args, shape_kwargs = _map(_shape_only, call)
        queue.shapes[key] = func(*shape_args, **shape_kwargs)
    return _map(_fresh, queue.shapes[key])


def _key(value: Any) -> Hashable:
    """Return what the shape of a result depends on. 1, 1.0 and True are not the same argument."""
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, dict):
        return tuple((key, _key(each)) for key, each in value.items())
    if isinstance(value, tuple | list):
        return tuple(_key(each) for each in value)
    return (type(value), value)


def _fresh(each: Any) -> Any:
    return _on_meta(each) if isinstance(each, torch.Tensor) else each


def _shape_only(each: Any) -> Any:
    if isinstance(each, LateTensor):
        return each.shape_only
    if isinstance(each, torch.Tensor):
        return _on_meta(each)
    return _META if isinstance(each, torch.device) else each


def _on_meta(each: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=_META)


def _new(each: Any, queue: WorkQueue) -> Any:
    return LateTensor(each, queue) if isinstance(each, torch.Tensor) else each


def _value(each: Any) -> Any:
    return each.value if isinstance(each, LateTensor) else each


def _fill(outputs: Any, values: Any) -> None:
    if isinstance(outputs, LateTensor):
        outputs.value = values
    elif isinstance(outputs, tuple | list):
        for output, value in zip(outputs, values, strict=True):
            _fill(output, value)

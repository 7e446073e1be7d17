"""Tensors that know their shape at once and their value later: what tensors on a GPU are to the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
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
        kwargs = kwargs or {}
        late = {
            id(each.shape_only): each for each in _tensors_in((*args, *kwargs.values())) if type(each) is LateTensor
        }
        if func._schema.is_mutable and not isinstance(args[0], LateTensor):
            raise RuntimeError(f"{func} would write to host memory later than the host expects")
        queue = next(iter(late.values())).queue
        result = _result_shapes(queue, func, (args, kwargs))
        outputs = _swap(lambda each: late.get(id(each)) if id(each) in late else LateTensor(each, queue), (result,))[0]

        def work() -> None:
            values = dict(zip(kwargs, _swap(_value, kwargs.values()), strict=True))
            _fill(outputs, func(*_swap(_value, args), **values))

        queue.launch(work)
        return outputs


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, tuple | list):
            yield from _tensors_in(each)


def _swap(function: Callable[[torch.Tensor], Any], values: Iterable[Any]) -> list[Any]:
    """Return `values` with `function(tensor)` in the place of each tensor, in lists of tensors too."""
    return [
        function(each)
        if isinstance(each, torch.Tensor)
        else _swap(function, each)
        if isinstance(each, tuple | list) and next(_tensors_in(each), None) is not None
        else each
        for each in values
    ]


def _result_shapes(queue: WorkQueue, func: Any, call: tuple[Any, dict[str, Any]]) -> Any:
    """Return what `func` gives on `meta`. What makes new tensors is remembered by its inputs; views are made anew."""
    if any(each.alias_info is not None for each in func._schema.returns):
        return _on_shapes(func, call)
    key = (func, _key(call))
    if key not in queue.shapes:
        queue.shapes[key] = _on_shapes(func, call)
    return _swap(_on_meta, (queue.shapes[key],))[0]


def _on_shapes(func: Any, call: tuple[Any, dict[str, Any]]) -> Any:
    args, kwargs = call
    options = dict(zip(kwargs, _swap(_shape_only, kwargs.values()), strict=True))
    return func(*_swap(_shape_only, args), **(options | {"device": _META} if "device" in options else options))


def _key(value: Any) -> Hashable:
    """Return what the shape of a result depends on. 1, 1.0 and True are not the same argument."""
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, dict):
        return tuple((key, _key(each)) for key, each in value.items())
    if isinstance(value, tuple | list):
        return tuple(_key(each) for each in value)
    return (type(value), value)


def _shape_only(each: torch.Tensor) -> torch.Tensor:
    return each.shape_only if isinstance(each, LateTensor) else _on_meta(each)


def _on_meta(each: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=_META)


def _value(each: torch.Tensor) -> torch.Tensor:
    return each.value if isinstance(each, LateTensor) else each


def _fill(outputs: Any, values: Any) -> None:
    if isinstance(outputs, LateTensor):
        outputs.value = values
    elif isinstance(outputs, tuple | list):
        for output, value in zip(outputs, values, strict=True):
            _fill(output, value)

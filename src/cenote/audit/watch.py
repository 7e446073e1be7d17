"""Watches every operation of a step as PyTorch hands it out, and notes those that would wait."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from cenote.audit.answers import Answers
from cenote.audit.finding import Finding, Place
from cenote.audit.judge import Judge, Verdict, op_name
from cenote.audit.place import calling_place, raising_place
from cenote.transfer import mark_pinned

_CONSTRUCTORS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor})
_INDEXING = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
_PRINTING = frozenset({torch.Tensor.__format__, torch.Tensor.__repr__})


class SyncWatch:
    """Use as a context around a step. `findings` has each fault once, in the order in which they came up.

    Two nets: what Python calls (constructors, lists as an index, printing and pinning show only there) and what reaches
    the dispatcher. A step that cannot go on ends in silence, with the finding `stopped` unless the line where it ended
    has another one.
    """

    def __init__(self, judge: Judge) -> None:
        self.findings: list[Finding] = []
        self._judge = judge
        self._calls = _Calls(self)
        self._operations = _Operations(self)
        self._nets = ExitStack()

    def __enter__(self) -> SyncWatch:
        self._nets.enter_context(self._operations)
        self._nets.enter_context(self._calls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._nets.close()
        if not isinstance(error, Exception):
            return False
        place = raising_place(error)
        if not any(finding.place == place for finding in self.findings):
            detail = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self.note(Finding(kind="stopped", operation=type(error).__name__, place=place, detail=detail))
        return True

    @property
    def judge(self) -> Judge:
        return self._judge

    def note(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def called_as(self, func: Any) -> str:
        """Return the caller's name of the operation that is running: `Tensor.tolist`, not `aten._to_copy`."""
        return self._calls.name or f"aten.{op_name(func)}"


class _Calls(TorchFunctionMode):
    """The calls of PyTorch's Python functions. `name` is the one that is running."""

    def __init__(self, watch: SyncWatch) -> None:
        super().__init__()
        self._watch = watch
        self.name = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.pin_memory and not torch.cuda.is_available():
            return mark_pinned(args[0].clone())
        if kwargs.get("pin_memory") and not torch.cuda.is_available():
            return mark_pinned(func(*args, **{**kwargs, "pin_memory": False}))
        outer, self.name = self.name, _readable(func)
        try:
            result = func(*args, **kwargs)
            self._check(func, args, result)
            return result
        finally:
            self.name = outer

    def _check(self, func: Any, args: Any, result: Any) -> None:
        judge = self._watch.judge
        found = None
        if func in _PRINTING and judge.on_device(args[0]):
            found = Verdict("copy_to_host", "printing a tensor reads its values")
        elif func in _INDEXING and judge.on_device(args[0]) and _holds_values(args[1]):
            found = Verdict("host_index", "a list or an array")
        elif func in _CONSTRUCTORS and judge.on_device(result) and not any(map(judge.on_device, args[-1:])):
            found = Verdict("constructor")
        if found is not None:
            self._watch.note(Finding(kind=found.kind, operation=self.name, place=calling_place(), detail=found.detail))


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations that reach the dispatcher, taken apart as far as the CUDA device would take them apart."""

    def __init__(self, watch: SyncWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch
        self._answers = Answers()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        judge = self._watch.judge
        if not judge.touches_device(args, kwargs):
            return func(*args, **kwargs)
        if not judge.is_listed(func):
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        verdict = judge.judge(func, args, kwargs)
        if verdict is None:
            return func(*args, **kwargs)
        place: Place = calling_place()
        name = self._watch.called_as(func)
        self._watch.note(Finding(kind=verdict.kind, operation=name, place=place, detail=verdict.detail))
        invented = self._answers.invent(func, (args, kwargs), place) if self._must_invent(verdict) else NotImplemented
        return func(*args, **kwargs) if invented is NotImplemented else invented

    def _must_invent(self, verdict: Verdict) -> bool:
        on_meta = self._watch.judge.accelerator == "meta"
        return on_meta and verdict.kind in ("reads_value", "unknown_size", "copy_to_host")


def _holds_values(index: Any) -> bool:
    """Return whether PyTorch would make a tensor of a part of `index`, which neither net sees it do."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list | np.ndarray) for part in parts)


def _readable(func: Any) -> str:
    name: str = resolve_name(func) or getattr(func, "__name__", repr(func))
    return name.removeprefix("torch._C.").removeprefix("torch.").replace("_VariableFunctions.", "")

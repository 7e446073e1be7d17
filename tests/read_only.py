"""Modules that nothing may write to: what steps that run at the same time share is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import pytest
import torch
from torch import nn
from transformers import PretrainedConfig

_WRITES = {"__setattr__", "__delattr__"}


class ReadOnly:
    """Refuses every write to modules and their configs while it is on, and finds those to what they hold."""

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        modules = [each for root in roots for each in root.modules()]
        configs = [each.config for each in modules if isinstance(getattr(each, "config", None), PretrainedConfig)]
        self._kept: dict[int, object] = {id(each): each for each in [*modules, *configs]}
        held = [each for one in self._kept.values() for each in _held(vars(one))]
        self._lists = [(each, list(map(id, each))) for each in held if isinstance(each, list)]
        tensors = [each for each in held if isinstance(each, torch.Tensor)]
        self._tensors = [(each, _values(each).clone(), _version(each)) for each in tensors]

    @contextmanager
    def on(self) -> Iterator[None]:
        """Raise where an attribute, a hook, a buffer or a config is written, and at the end for a tensor or a list."""
        classes = {cls for each in self._kept.values() for cls in type(each).__mro__ if cls is not object}
        with pytest.MonkeyPatch.context() as patch:
            for cls in classes:
                for method in _WRITES & set(vars(cls)):
                    patch.setattr(cls, method, self._refusing(getattr(cls, method)))
            for each in self._kept.values():
                for name, content in list(vars(each).items()):
                    if isinstance(content, dict):  # hooks and buffers, which torch writes without `setattr`
                        patch.setitem(vars(each), name, MappingProxyType(content))
            yield
        for values, before in self._lists:
            assert list(map(id, values)) == before
        for tensor, copy, version in self._tensors:
            assert torch.equal(_values(tensor), copy)
            assert _version(tensor) == version

    def _refusing(self, write: Callable[..., None]) -> Callable[..., None]:
        def refuse(target: object, name: str, *value: object) -> None:
            if id(target) in self._kept:
                raise AssertionError(f"a step writes {name} of {type(target).__name__}")
            write(target, name, *value)

        return refuse


def _held(content: object) -> Iterator[torch.Tensor | list[object]]:
    """Find the tensors and lists in what a module holds; the modules in it are looked at by themselves."""
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, list | tuple | Mapping):
        if isinstance(content, list):
            yield content
        for each in content.values() if isinstance(content, Mapping) else content:
            yield from _held(each)
    elif type(content).__module__.startswith("cenote") and not isinstance(content, nn.Module):
        yield from _held(getattr(content, "__dict__", {}))


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version

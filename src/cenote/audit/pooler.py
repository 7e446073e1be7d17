"""Audit a pooler or a module of somebody's own, whatever engine it was written for."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from cenote.audit.clean import read_clean_ops
from cenote.audit.judge import Judge
from cenote.audit.known import read_known
from cenote.audit.options import wishes
from cenote.audit.pooler_steps import Chunked, chunked_steps, whole_steps
from cenote.audit.report import Report
from cenote.audit.watch import SyncWatch
from cenote.errors import OptionError
from cenote.params import TASKS, PoolingParams, Task
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.pooler import Pooler

DTYPE = torch.float16


def audit_pooler(make: Callable[[], Any], *, hidden_size: int = 768, name: str | None = None) -> Report:
    """Call the pooler that `make` returns with `(hidden_states, pooling_metadata)` and report what would wait.

    `make` is a class or a factory without arguments. Weights of an `nn.Module` are moved to `meta`. The hidden states
    are fp16 `[T, hidden_size]`, the metadata `cenote.pooling.metadata.PoolingMetadata`, with token ids on the host.
    A pooler with `get_supported_tasks()` gets the tasks that it names, another one the task `embed`.
    """
    pooler = make()
    if isinstance(pooler, nn.Module):
        pooler = pooler.to("meta").eval()
    watch = SyncWatch(Judge("meta", read_clean_ops()))
    steps: list[str] = []
    with torch.inference_mode():
        for task in _tasks(pooler):
            call = Chunked(_dispatched(pooler, task), task, hidden_size, DTYPE)
            verify = pooler.verify_params if isinstance(pooler, Pooler) else _accept
            steps += whole_steps(call, wishes(task, verify), watch)
            steps += _chunks(call, watch)
    return Report.of(name or type(pooler).__qualname__, steps, watch.findings, read_known())


def import_pooler(target: str) -> Callable[[], Any]:
    """Return what `my_module:MyPool` names; modules are found from the working folder, too."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise OptionError(f"{target!r} does not name a pooler; write my_module:MyPool")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"cannot import {target!r}: {error}") from error
    if not callable(found):
        raise OptionError(f"{target!r} is neither a class nor a function")
    return found  # type: ignore[no-any-return]


def _tasks(pooler: Any) -> list[Task]:
    supported = getattr(pooler, "get_supported_tasks", None)
    named = set(supported()) if supported is not None else set()
    return [task for task in TASKS if task in named] or ["embed"]


def _dispatched(pooler: Any, task: Task) -> Callable[..., object]:
    """Return `pooler` as the runner would call it: one of Cenote's never sees a part of a sequence."""
    return DispatchPooler({task: pooler}) if isinstance(pooler, Pooler) else pooler


def _chunks(call: Chunked, watch: SyncWatch) -> list[str]:
    """Run the steps with chunks. A pooler may refuse them: that is no fault, and is told in the name of the step."""
    before = len(watch.findings)
    names = list(chunked_steps(call, watch))
    refusals = [finding for finding in watch.findings[before:] if finding.kind == "stopped"]
    if not refusals:
        return names
    watch.findings[before:] = [finding for finding in watch.findings[before:] if finding not in refusals]
    return [f"chunks are refused: {refusals[0].detail}"]


def _accept(params: PoolingParams) -> None:
    """Take every option: a pooler of another engine has no check of its own, and may ignore what it does not know."""

"""The wishes that callers can have of a task: each takes a way of its own through a pooler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from cenote.errors import CenoteError
from cenote.params import PoolingParams, Task

Verify = Callable[[PoolingParams], None]
"""Raises `CenoteError` where the pooler under audit cannot do what the params ask."""

TAG = 7
"""A token id that a text may have as the mark of a step."""


def wishes(task: Task, verify: Verify) -> list[PoolingParams]:
    """Return params of `task` with one option each, as far as `verify` accepts them; the plain ones come first."""
    tried = (
        PoolingParams(task=task),
        PoolingParams(task=task, use_activation=False),
        PoolingParams(task=task, use_activation=True),
        PoolingParams(task=task, dimensions=2),
        PoolingParams(task=task, output_dtype="float16"),
        PoolingParams(task=task, input_type="query"),
        PoolingParams(task=task, input_type="document"),
        PoolingParams(task=task, num_skipped_tokens=1),
        PoolingParams(task=task, num_skipped_tokens=1_000_000),
        PoolingParams(task=task, segments=((0, 1), (0, 1))),
        PoolingParams(task=task, segments=((0, 1), (0, 1))),
        PoolingParams(task=task, step_tag_id=TAG),
        PoolingParams(task=task, step_tag_id=TAG + 1),
        PoolingParams(task=task, returned_token_ids=(0,)),
        PoolingParams(task=task, step_tag_id=TAG, returned_token_ids=(0,)),
    )
    return [params for params in tried if _accepted(params, verify)]


def describe(params: PoolingParams) -> str:
    """Return the task and the options that are set."""
    options = {field.name: (getattr(params, field.name), field.default) for field in fields(params)}
    changed = {name: value for name, (value, default) in options.items() if name != "task" and value != default}
    chosen = [f"{name}={value}" if isinstance(value, int | str | tuple) else name for name, value in changed.items()]
    return " ".join([str(params.task), *chosen])


def _accepted(params: PoolingParams, verify: Verify) -> bool:
    try:
        params.verify()
        verify(params)
    except CenoteError:
        return False
    return True

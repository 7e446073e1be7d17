"""The operations that are known to be free of waits on a GPU, and where that is known from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLEAN_OPS_FILE = Path(__file__).with_name("clean_ops.toml")


@dataclass(frozen=True)
class CleanOps:
    """`names` are operations as `add.Tensor`; those in `takes_host_scalars` take a host tensor of no dimensions as a
    kernel's argument, those in `only_shapes` read nothing of a host tensor but its shape.
    """

    names: frozenset[str]
    takes_host_scalars: frozenset[str]
    only_shapes: frozenset[str]


def read_clean_ops(path: Path = CLEAN_OPS_FILE) -> CleanOps:
    """Read the list; every group has its operations, the reason why they are clean, and where that is known from."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))["group"]
    for group in groups:
        missing = {"ops", "reason", "origin"} - set(group)
        if missing:
            raise ValueError(f"a group in {path} has no {', '.join(sorted(missing))}")
    return CleanOps(
        names=_ops(groups, "ops"),
        takes_host_scalars=_ops(groups, "takes_host_scalars"),
        only_shapes=_ops(groups, "only_shapes"),
    )


def _ops(groups: list[dict[str, Any]], key: str) -> frozenset[str]:
    """Return the operations of the groups that have `key`."""
    return frozenset(op for group in groups if group.get(key) for op in group["ops"])

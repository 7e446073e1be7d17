"""Which operations answer on which path: one dialect's own, and all of them on the bare paths."""

from __future__ import annotations

from collections.abc import Iterable

from cenote.server.dialect import Dialect
from cenote.server.endpoint import Offer

Paths = dict[tuple[str, str], list[Offer]]
"""What is offered by method and path."""


def own_paths(dialect: Dialect) -> Paths:
    """Return what a dialect answers under its prefix."""
    return {(each.method, each.path): [Offer(dialect.for_operation(each), each)] for each in dialect.operations}


def bare_paths(dialects: Iterable[Dialect]) -> Paths:
    """Return what is answered without a prefix, aliases included; operations that share a path keep their order."""
    paths: Paths = {}
    for dialect in dialects:
        for operation in dialect.operations:
            for path in () if operation.is_own else (operation.path, *operation.aliases):
                paths.setdefault((operation.method, path), []).append(Offer(dialect, operation))
    return paths

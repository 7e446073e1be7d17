"""Run a head over the rows of many sequences at once: one operation where a loop would need one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")
TokenRows = list[torch.Tensor | None]


def map_packed(rows: TokenRows, function: Callable[[torch.Tensor, list[int]], torch.Tensor]) -> TokenRows:
    """Apply `function(packed rows [N, H], rows of each sequence)` and split its result; `None` passes through."""
    present = [each for each in rows if each is not None]
    if not present:
        return rows
    counts = [len(each) for each in present]
    results = iter(torch.split(function(torch.cat(present), counts), counts))
    return [None if each is None else next(results) for each in rows]


def of_present(rows: TokenRows, values: Sequence[T]) -> list[T]:
    """Return the values that belong to finished sequences."""
    return [value for each, value in zip(rows, values, strict=True) if each is not None]

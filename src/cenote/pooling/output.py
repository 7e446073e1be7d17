"""What a step gives back: one flat buffer for each dtype on the device, and a host table that says what lies where.

The host knows every extent before anything runs, so the step needs one copy back for each dtype, whatever tasks,
widths and options are mixed in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from cenote.params import Task

PoolerOutput = torch.Tensor | list[torch.Tensor] | list[torch.Tensor | None]
"""What a pooler gives for `n` sequences: one tensor `[n, D]`, or a tensor for each (`None` while it is unfinished)."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """One task's output for some sequences of a step; `sequences` are their positions in the step."""

    task: Task
    sequences: Sequence[int]
    rows: PoolerOutput


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """Where one (sequence, task) lies in the flat buffer of `dtype`. `rows` is `None` for an output of one vector."""

    sequence: int
    task: Task
    dtype: torch.dtype
    offset: int
    rows: int | None
    columns: int

    @property
    def size(self) -> int:
        return self.columns if self.rows is None else self.rows * self.columns

    def view(self, host_buffers: Mapping[torch.dtype, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return `[columns]` or `[rows, columns]` of the copied buffer: a view, good for as long as the buffer is."""
        flat = host_buffers[self.dtype][self.offset : self.offset + self.size]
        return flat if self.rows is None else flat.reshape(self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class FlatOutput:
    """A step's pooled values: `buffers` are one-dimensional, owned by this output, and still to be copied back."""

    buffers: dict[torch.dtype, torch.Tensor]
    entries: list[OutputEntry]


def pack_outputs(groups: Sequence[PooledGroup]) -> FlatOutput:
    """Lay the outputs of a step end to end, one buffer for each dtype. An unfinished sequence gets no entry."""
    table = _Table()
    for group in groups:
        if isinstance(group.rows, torch.Tensor):
            table.add_block(group.task, group.sequences, group.rows)
        else:
            for sequence, rows in zip(group.sequences, group.rows, strict=True):
                if rows is not None:
                    table.add_one(group.task, sequence, rows)
    return FlatOutput({dtype: torch.cat(parts) for dtype, parts in table.parts.items()}, table.entries)


class _Table:
    """The entries so far, and the parts of each dtype's buffer with their total size."""

    def __init__(self) -> None:
        self.parts: dict[torch.dtype, list[torch.Tensor]] = {}
        self.sizes: dict[torch.dtype, int] = {}
        self.entries: list[OutputEntry] = []

    def add_block(self, task: Task, sequences: Sequence[int], rows_ND: torch.Tensor) -> None:
        columns = rows_ND.shape[1]
        offset = self._append(rows_ND)
        for index, sequence in enumerate(sequences):
            self.entries.append(OutputEntry(sequence, task, rows_ND.dtype, offset + index * columns, None, columns))

    def add_one(self, task: Task, sequence: int, rows: torch.Tensor) -> None:
        num_rows = rows.shape[0] if rows.dim() == 2 else None
        offset = self._append(rows)
        self.entries.append(OutputEntry(sequence, task, rows.dtype, offset, num_rows, rows.shape[-1]))

    def _append(self, rows: torch.Tensor) -> int:
        offset = self.sizes.get(rows.dtype, 0)
        self.sizes[rows.dtype] = offset + rows.numel()
        self.parts.setdefault(rows.dtype, []).append(rows.reshape(-1))
        return offset

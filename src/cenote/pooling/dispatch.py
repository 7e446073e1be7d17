"""One step, several tasks: each task's pooler gets the rows of the sequences that were sent for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import torch
from torch import nn

from cenote.errors import EngineError, UnsupportedTaskError
from cenote.params import PoolingParams, PoolingParamsUpdate, Task, TaskParams
from cenote.pooling.chunks import finished_sequences
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.output import PooledGroup
from cenote.pooling.pooler import FloatArray, PooledResult, Pooler


class DispatchPooler(nn.Module):
    """All tasks of a model over one step's hidden states.

    Runs of neighbouring sequences with an equal set of tasks are pooled together, so order the batch to have few. Each
    task of the set sees the run's own slice of the rows and of the metadata, its row positions counted from the start
    of the slice. Hidden states of unfinished sequences are kept in their `PoolingStates` and joined once.
    """

    def __init__(self, poolers_by_task: Mapping[Task, Pooler]) -> None:
        super().__init__()
        for task, pooler in poolers_by_task.items():
            if task not in pooler.get_supported_tasks():
                raise EngineError(f"{type(pooler).__name__} does not support the task {task!r}")
        self.poolers_by_task = dict(poolers_by_task)
        self.poolers = nn.ModuleList(dict.fromkeys(poolers_by_task.values()))

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset(self.poolers_by_task)

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        """Return what `task`'s pooler needs of its params."""
        return self._pooler(task).get_pooling_updates(task)

    def verify_params(self, task: Task, params: PoolingParams) -> None:
        """Raise `InputError` where the model cannot do what is asked; call it before anything is queued."""
        pooler = self._pooler(task)
        params.verify()
        pooler.verify_params(params)

    def needs_all_rows(self, params_by_task: TaskParams) -> bool:
        """Return whether a sequence sent for these tasks needs the rows of all of its tokens."""
        return any(self._pooler(task).needs_all_rows() for task in params_by_task)

    def supports_chunks(self, params_by_task: TaskParams) -> bool:
        """Return whether a sequence sent for these tasks may be run in several steps."""
        return all(self._pooler(task).supports_chunks() for task in params_by_task)

    def finish(
        self, task: Task, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams
    ) -> PooledResult:
        """Turn one sequence's copied values into the answer, on the host."""
        return self._pooler(task).finish(rows_np, token_ids_np, params)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> list[PooledGroup]:
        """Pool a step `[T, H]`; raise where rows do not add up or a task is unknown. Unfinished ones are left out."""
        scheduled = int(pooling_metadata.get_pooling_cursor().num_scheduled_tokens_cpu.numpy().sum())
        if scheduled != hidden_states.shape[0]:
            raise EngineError(f"{hidden_states.shape[0]} hidden states for {scheduled} scheduled tokens")
        rows, metadata, sequences = finished_sequences(hidden_states, pooling_metadata, self.needs_all_rows)
        outputs: list[PooledGroup] = []
        for part, group_rows, group in _runs(rows, metadata):
            outputs.extend(
                PooledGroup(task, sequences[part], self._pooler(task)(group_rows, group.for_task(task)))
                for task in group.params_by_task[0]
            )
        return outputs

    def _pooler(self, task: Task) -> Pooler:
        pooler = self.poolers_by_task.get(task)
        if pooler is None:
            names = ", ".join(self.poolers_by_task)
            raise UnsupportedTaskError(f"this model does not offer the task {task!r}; it offers: {names}", param="task")
        return pooler


def _runs(
    hidden_states: torch.Tensor, metadata: PoolingMetadata
) -> Iterator[tuple[slice, torch.Tensor, PoolingMetadata]]:
    """Yield each run of equal task sets: its sequences, its rows, and its metadata with positions in those rows."""
    task_sets = metadata.task_sets
    if len(set(task_sets)) == 1:  # the usual step: nothing to cut
        yield slice(0, len(metadata)), hidden_states, metadata
        return
    start = first_row = 0
    for _, run in groupby(task_sets):
        part = slice(start, start + len(list(run)))
        group = metadata[part]
        cursor = group.get_pooling_cursor()
        num_rows = int(cursor.num_scheduled_tokens_cpu.numpy().sum())
        group = replace(group, pooling_cursor=cursor.shifted(first_row))
        yield part, hidden_states[first_row : first_row + num_rows], group
        start, first_row = part.stop, first_row + num_rows

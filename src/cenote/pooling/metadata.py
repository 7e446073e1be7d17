"""What one step tells its poolers: lengths and token ids on the host, row positions on the device.

Everything that decides the shape of an output is a host integer, so that no pooler has to ask the device for it.
Names that end in `_gpu` live on the model's device (whatever it is), names that end in `_cpu` and `_np` on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from cenote.errors import EngineError, InputError
from cenote.params import PoolingParams, Task, TaskParams
from cenote.transfer import async_tensor_h2d

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PoolingCursor:
    """Where each of `B` sequences lies in the packed rows of a step, and how far it has come.

    `num_scheduled_tokens_cpu` counts a sequence's rows in this step, `seq_lens_cpu` its rows up to and including this
    step, `prompt_lens_cpu` all that it will ever have: int64 `[B]` each. `partial_prefill` says whether any sequence
    has fewer rows here than it has tokens, `finished_mask` which ones are complete; both are worked out once on the
    host and again for a slice.
    """

    first_token_indices_gpu: torch.Tensor
    last_token_indices_gpu: torch.Tensor
    prompt_lens_cpu: torch.Tensor
    seq_lens_cpu: torch.Tensor
    num_scheduled_tokens_cpu: torch.Tensor
    partial_prefill: bool
    finished_mask: list[bool]

    def __getitem__(self, indices: slice) -> PoolingCursor:
        """Return the cursor of some neighbouring sequences. Row positions keep counting from the start of the step."""
        lengths = _HostLengths(
            self.num_scheduled_tokens_cpu.numpy()[indices],
            self.prompt_lens_cpu.numpy()[indices],
            self.seq_lens_cpu.numpy()[indices],
        )
        return _cursor(lengths, self.first_token_indices_gpu[indices], self.last_token_indices_gpu[indices])

    def shifted(self, num_rows: int) -> PoolingCursor:
        """Return the same cursor for rows that start `num_rows` later."""
        if not num_rows:
            return self
        return replace(
            self,
            first_token_indices_gpu=self.first_token_indices_gpu - num_rows,
            last_token_indices_gpu=self.last_token_indices_gpu - num_rows,
        )

    def is_partial_prefill(self) -> bool:
        return self.partial_prefill

    def is_finished(self) -> torch.Tensor:
        """Return a host tensor of booleans `[B]`."""
        return self.prompt_lens_cpu == self.seq_lens_cpu

    def get_finished_mask(self) -> list[bool]:
        return self.finished_mask


@dataclass(frozen=True)
class _HostLengths:
    num_scheduled: IntArray
    prompt: IntArray
    seq: IntArray


def _cursor(lengths: _HostLengths, first_gpu: torch.Tensor, last_gpu: torch.Tensor) -> PoolingCursor:
    return PoolingCursor(
        first_token_indices_gpu=first_gpu,
        last_token_indices_gpu=last_gpu,
        prompt_lens_cpu=torch.from_numpy(lengths.prompt),
        seq_lens_cpu=torch.from_numpy(lengths.seq),
        num_scheduled_tokens_cpu=torch.from_numpy(lengths.num_scheduled),
        partial_prefill=not np.array_equal(lengths.prompt, lengths.num_scheduled),
        finished_mask=(lengths.prompt == lengths.seq).tolist(),
    )


def build_pooling_cursor(
    num_scheduled_tokens_np: IntArray,
    prompt_lens_np: IntArray,
    seq_lens_np: IntArray,
    device: torch.device,
    query_start_loc_gpu: torch.Tensor | None = None,
) -> PoolingCursor:
    """Build a step's cursor from host integers, `[B]` each.

    `query_start_loc_gpu` is the batch's own cumulative row count `[B + 1]`, used instead of an upload where it is
    given. Raise `EngineError` where it does not fit the batch or a sequence has no rows.
    """
    lengths = _HostLengths(
        *(np.ascontiguousarray(a, np.int64) for a in (num_scheduled_tokens_np, prompt_lens_np, seq_lens_np))
    )
    if lengths.num_scheduled.min(initial=1) < 1:
        raise EngineError("every sequence of a step needs at least one row")
    if query_start_loc_gpu is None:
        starts_np = np.concatenate(([0], np.cumsum(lengths.num_scheduled)))
        query_start_loc_gpu = async_tensor_h2d(starts_np, device)
    elif (
        query_start_loc_gpu.shape[0] != len(lengths.num_scheduled) + 1 or query_start_loc_gpu.device.type != device.type
    ):
        raise EngineError(
            f"query_start_loc_gpu has {query_start_loc_gpu.shape[0]} values on {query_start_loc_gpu.device}; "
            f"a batch of {len(lengths.num_scheduled)} needs one more than that on {device}"
        )
    return _cursor(lengths, query_start_loc_gpu[:-1], query_start_loc_gpu[1:] - 1)


@dataclass
class PoolingStates:
    """What one unfinished sequence keeps between steps: its hidden states so far, one tensor for each step."""

    hidden_states_cache: list[torch.Tensor] = field(default_factory=list)

    def rewind(self, num_rows: int) -> None:
        """Keep the first `num_rows` rows: a step that failed is run again."""
        while sum(len(chunk) for chunk in self.hidden_states_cache) > num_rows:
            self.hidden_states_cache.pop()

    def clean(self) -> None:
        """Free the hidden states: the sequence is finished, or its request was cancelled."""
        self.hidden_states_cache.clear()


@dataclass(frozen=True, kw_only=True)
class PoolingMetadata:
    """What a step's `B` sequences ask of the pooling. Every sequence may be sent for several tasks at once.

    `params_by_task` has each sequence's params by task, `token_ids_np` each sequence's whole prompt (or `None` where no
    task of it asked for the ids), `pooling_states` each sequence's state between steps. Token ids exist on the host
    only. `task` is the one that is being pooled now; `for_task` sets it. A slice is the metadata of some neighbours.
    """

    prompt_lens: torch.Tensor
    """host int64 `[B]`"""
    params_by_task: Sequence[TaskParams]
    token_ids_np: Sequence[IntArray | None]
    pooling_states: Sequence[PoolingStates]
    pooling_cursor: PoolingCursor | None = None
    task: Task | None = None

    def __getitem__(self, indices: slice) -> PoolingMetadata:
        return PoolingMetadata(
            prompt_lens=self.prompt_lens[indices],
            params_by_task=self.params_by_task[indices],
            token_ids_np=self.token_ids_np[indices],
            pooling_states=self.pooling_states[indices],
            pooling_cursor=None if self.pooling_cursor is None else self.pooling_cursor[indices],
            task=self.task,
        )

    def __len__(self) -> int:
        return len(self.params_by_task)

    def for_task(self, task: Task) -> PoolingMetadata:
        """Return the same metadata with `pooling_params` and `tasks` of one task."""
        return replace(self, task=task)

    @property
    def task_sets(self) -> list[frozenset[Task]]:
        """The set of tasks that each sequence was sent for."""
        return [frozenset(params) for params in self.params_by_task]

    @property
    def pooling_params(self) -> list[PoolingParams]:
        """Each sequence's params of the current task, or of its only one."""
        params = [self._params_of(by_task) for by_task in self.params_by_task]
        if any(each.task is None for each in params):
            raise InputError("PoolingParams.task must be set before pooling", param="task")
        return params

    @property
    def tasks(self) -> list[Task]:
        """The current task of each sequence."""
        return [params.task for params in self.pooling_params if params.task is not None]

    def _params_of(self, by_task: TaskParams) -> PoolingParams:
        if self.task is not None:
            return by_task[self.task]
        if len(by_task) != 1:
            raise EngineError("a sequence was sent for several tasks: choose one with PoolingMetadata.for_task(task)")
        return next(iter(by_task.values()))

    def get_pooling_cursor(self) -> PoolingCursor:
        """Return the cursor; raise `EngineError` where the step has none yet."""
        if self.pooling_cursor is None:
            raise EngineError("this PoolingMetadata has no cursor: build one with build_pooling_cursor()")
        return self.pooling_cursor

    def get_prompt_token_ids_np(self) -> list[IntArray]:
        """Return each sequence's whole prompt, finished or not; raise `EngineError` where one is absent."""
        present = [ids for ids in self.token_ids_np if ids is not None]
        if len(present) < len(self.token_ids_np):
            raise EngineError(
                "the token ids of a sequence are absent: the pooler must ask for them with "
                "get_pooling_updates(task) returning PoolingParamsUpdate(requires_token_ids=True)"
            )
        return present

    def get_prompt_token_ids_cpu(self) -> list[torch.Tensor]:
        """Return `get_prompt_token_ids_np` as host tensors that share its memory."""
        return [torch.from_numpy(ids) for ids in self.get_prompt_token_ids_np()]

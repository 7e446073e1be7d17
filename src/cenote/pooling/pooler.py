"""What every pooler is: hidden states in, one output for each sequence out, and a host half after the copy back."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cenote.outputs import SparseVector
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.output import PoolerOutput

FloatArray = npt.NDArray[np.floating]
PooledResult = FloatArray | SparseVector


class Pooler(nn.Module, ABC):
    """Pool the rows of a step for one task at a time.

    `forward` never asks the device for a value and never waits for it; `finish` runs on the host once the values are
    there. A vLLM pooler needs only the first two methods and `forward`; the others have defaults.
    """

    @abstractmethod
    def get_supported_tasks(self) -> frozenset[Task]:
        """Return the tasks that this pooler answers."""

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:  # noqa: ARG002 - the contract of every pooler
        """Return what the pooler needs of the params of `task`."""
        return PoolingParamsUpdate()

    @abstractmethod
    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        """Pool the packed rows `[T, H]` of `B` sequences: `[B, D]`, or one tensor (or `None`) for each."""

    def needs_all_rows(self) -> bool:
        """Return whether a sequence that came in chunks must be joined first."""
        return True

    def supports_chunks(self) -> bool:
        """Return whether a long sequence of a causal model may be run in several steps."""
        return True

    def verify_params(self, params: PoolingParams) -> None:
        """Raise `InputError` where this model cannot do what `params` ask; runs before anything is queued."""

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> PooledResult:  # noqa: ARG002
        """Turn the copied values of one sequence into the answer: trimming whose size depends on the values."""
        return rows_np

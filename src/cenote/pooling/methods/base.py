"""The two kinds of pooling method: one row for each sequence, or the rows of each sequence.

A method turns the packed hidden states of a step `[T, H]` into rows; what becomes of the rows is the head's work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn

from cenote.errors import EngineError
from cenote.params import PoolingParamsUpdate, Task
from cenote.pooling.metadata import PoolingMetadata


class SequencePoolingMethod(nn.Module, ABC):
    """One row for each sequence: `[T, H]` -> `[B, H]`."""

    needs_all_rows = True
    """Whether the rows of the sequence's last chunk are not enough."""

    @abstractmethod
    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        """Return `[B, D]`."""


class TokenPoolingMethod(nn.Module, ABC):
    """The rows of each sequence: `[T, H]` -> a list of `[n, H]`, `None` for a sequence that is not finished."""

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:  # noqa: ARG002 - the contract of every method
        """Return what the method needs of the params of `task`."""
        return PoolingParamsUpdate()

    @abstractmethod
    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> list[torch.Tensor | None]:
        """Return one tensor for each sequence, in memory that no later step writes to."""


def refuse_partial_prefill(pooling_metadata: PoolingMetadata, method: str) -> None:
    """Raise `EngineError` where a sequence is not whole in this step."""
    if pooling_metadata.get_pooling_cursor().is_partial_prefill():
        raise EngineError(f"{method} needs every row of a sequence in one step; its chunks must be joined before it")

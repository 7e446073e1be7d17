"""Ragged batches for the pooling tests: seeded rows, and the metadata that a step would bring with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from cenote.params import PoolingParams, Task
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(1, 9), min_size=0, max_size=7)
SOME_LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=7)


def hidden_rows(
    lengths: Sequence[int], width: int = 6, seed: int = 0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Seeded hidden states `[sum(lengths), width]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), width, generator=generator).to(dtype)


def split(rows: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
    return list(torch.split(rows, list(lengths)))


@dataclass
class Step:
    """What a test says of a step; what it leaves out is a whole prompt with one task."""

    lengths: Sequence[int]
    task: Task = "embed"
    params: Sequence[Mapping[str, Any]] | None = None
    prompt_lens: Sequence[int] | None = None
    seq_lens: Sequence[int] | None = None
    token_ids: Sequence[Sequence[int]] | None = None
    tasks: Sequence[Sequence[Task]] | None = None
    states: list[PoolingStates] = field(default_factory=list)
    device: torch.device = CPU

    def metadata(self) -> PoolingMetadata:
        count = len(self.lengths)
        prompt_np = np.array(self.lengths if self.prompt_lens is None else self.prompt_lens, dtype=np.int64)
        seq_np = np.array(self.lengths if self.seq_lens is None else self.seq_lens, dtype=np.int64)
        cursor = build_pooling_cursor(np.array(self.lengths, dtype=np.int64), prompt_np, seq_np, self.device)
        tasks = self.tasks or [(self.task,)] * count
        params = self.params or [{}] * count
        ids = self.token_ids
        return PoolingMetadata(
            prompt_lens=cursor.prompt_lens_cpu,
            params_by_task=[{task: PoolingParams(task=task, **params[i]) for task in tasks[i]} for i in range(count)],
            token_ids_np=[None if ids is None else np.array(ids[i], dtype=np.int64) for i in range(count)],
            pooling_states=self.states or [PoolingStates() for _ in range(count)],
            pooling_cursor=cursor,
        )

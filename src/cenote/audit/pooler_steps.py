"""Steps of a pooler alone: hidden states `[T, H]` on `meta`, sequences whole, and sequences in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cenote.audit.options import TAG, describe
from cenote.audit.watch import SyncWatch
from cenote.params import PoolingParams, Task
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor

LENGTHS = (1, 9, 4, 9, 12)
_META = torch.device("meta")


@dataclass(frozen=True)
class Chunked:
    """A pooler, called with `(hidden_states, pooling_metadata)`, and what it is called with."""

    pooler: Callable[[torch.Tensor, PoolingMetadata], object]
    task: Task
    hidden_size: int
    dtype: torch.dtype

    def call(self, params: PoolingParams, chunks: Chunks) -> None:
        """Run one step."""
        hidden_states = torch.empty((int(chunks.scheduled_np.sum()), self.hidden_size), dtype=self.dtype, device=_META)
        self.pooler(hidden_states, chunks.metadata(self.task, params))


@dataclass(frozen=True)
class Chunks:
    """What one step brings of each sequence: `scheduled_np` tokens, `done_np` of `lens_np` with them."""

    lens_np: npt.NDArray[np.int64]
    done_np: npt.NDArray[np.int64]
    scheduled_np: npt.NDArray[np.int64]
    states: Many[PoolingStates]

    def metadata(self, task: Task, params: PoolingParams) -> PoolingMetadata:
        cursor = build_pooling_cursor(self.scheduled_np, self.lens_np, self.done_np, _META)
        return PoolingMetadata(
            prompt_lens=cursor.prompt_lens_cpu,
            params_by_task=[{task: params}] * len(self.lens_np),
            token_ids_np=[np.where(np.arange(length) % 2, TAG, TAG + 2) for length in self.lens_np],
            pooling_states=self.states,
            pooling_cursor=cursor,
            task=task,
        )


def whole_steps(pooler: Chunked, params: Many[PoolingParams], watch: SyncWatch) -> Iterator[str]:
    """Run sequences that are whole in one step: one, and many."""
    for each in params:
        for lens_np in (np.array(LENGTHS[1:2]), np.array(LENGTHS)):
            with watch:
                pooler.call(each, Chunks(lens_np, lens_np, lens_np, [PoolingStates() for _ in lens_np]))
            yield f"{len(lens_np)} in the pooler alone, {describe(each)}"


def chunked_steps(pooler: Chunked, watch: SyncWatch) -> Iterator[str]:
    """Run sequences in two steps: the first gives no output for those that are longer than its part."""
    lens_np = np.array(LENGTHS)
    states = [PoolingStates() for _ in lens_np]
    first_np = np.minimum(lens_np, 5)
    left = lens_np > first_np
    params = PoolingParams(task=pooler.task, requires_token_ids=True)
    with watch:
        pooler.call(params, Chunks(lens_np, first_np, first_np, states))
    yield f"first chunks in the pooler alone, {pooler.task}"
    rest = [state for state, unfinished in zip(states, left.tolist(), strict=True) if unfinished]
    with watch:
        pooler.call(params, Chunks(lens_np[left], lens_np[left], (lens_np - first_np)[left], rest))
    yield f"last chunks in the pooler alone, {pooler.task}"

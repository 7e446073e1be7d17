"""Sequences that arrive in several steps: their hidden states are kept, and joined once, before any pooler runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from cenote.errors import EngineError
from cenote.params import TaskParams
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor


def keep_chunk(state: PoolingStates, chunk: torch.Tensor) -> None:
    """Remember the rows of one step, in memory of their own: the next step may write to the runner's."""
    state.hidden_states_cache.append(chunk.clone())


def join_chunks(state: PoolingStates, num_tokens: int) -> torch.Tensor:
    """Return all kept rows of a finished sequence in order, and free its state.

    Raise `EngineError` where they are not one for each token of the prompt.
    """
    chunks = list(state.hidden_states_cache)
    state.clean()
    num_rows = sum(len(chunk) for chunk in chunks)
    if num_rows != num_tokens:
        raise EngineError(f"a finished sequence of {num_tokens} tokens has {num_rows} hidden states")
    return torch.cat(chunks) if len(chunks) > 1 else chunks[0]


Finished = tuple[torch.Tensor, PoolingMetadata, Sequence[int]]


def finished_sequences(
    hidden_states: torch.Tensor, metadata: PoolingMetadata, needs_all_rows: Callable[[TaskParams], bool]
) -> Finished:
    """Return the packed rows, the metadata and the positions of the sequences that are finished in this step.

    A sequence for which `needs_all_rows(its params)` gets all of its rows back, those of earlier steps first; another
    one the rows of its last chunk. Unfinished ones are kept and left out. A step without chunks passes through.
    """
    cursor = metadata.get_pooling_cursor()
    if not cursor.is_partial_prefill():
        return hidden_states, metadata, range(len(metadata))
    rows: list[torch.Tensor] = []
    kept: list[int] = []
    prompt_lens = cursor.prompt_lens_cpu.tolist()
    chunks = torch.split(hidden_states, cursor.num_scheduled_tokens_cpu.tolist())
    for index, (chunk, state) in enumerate(zip(chunks, metadata.pooling_states, strict=True)):
        if whole := needs_all_rows(metadata.params_by_task[index]):
            keep_chunk(state, chunk)
        if cursor.get_finished_mask()[index]:
            kept.append(index)
            rows.append(join_chunks(state, prompt_lens[index]) if whole else chunk)
    packed = torch.cat(rows) if rows else hidden_states[:0]
    return packed, _metadata_of(metadata, kept, rows), kept


def _metadata_of(metadata: PoolingMetadata, kept: list[int], rows: list[torch.Tensor]) -> PoolingMetadata:
    lengths_np = np.array([len(each) for each in rows], dtype=np.int64)
    prompt_lens_np = metadata.prompt_lens.numpy()[kept]
    device = metadata.get_pooling_cursor().first_token_indices_gpu.device
    return replace(
        metadata,
        prompt_lens=torch.from_numpy(prompt_lens_np),
        params_by_task=[metadata.params_by_task[i] for i in kept],
        token_ids_np=[metadata.token_ids_np[i] for i in kept],
        pooling_states=[metadata.pooling_states[i] for i in kept],
        pooling_cursor=build_pooling_cursor(lengths_np, prompt_lens_np, prompt_lens_np, device),
    )

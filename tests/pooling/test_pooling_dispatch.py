"""Several tasks in one step: runs of equal task sets, each over its own slice, chunks joined once before them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import SOME_LENGTHS, Step, hidden_rows, split
from torch import nn

from cenote.errors import EngineError, InputError, UnsupportedTaskError
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.heads.embedding import EmbeddingOptions, EmbeddingPoolerHead
from cenote.pooling.metadata import PoolingMetadata, PoolingStates
from cenote.pooling.methods.base import SequencePoolingMethod
from cenote.pooling.methods.cls import CLSPool
from cenote.pooling.methods.last import LastPool
from cenote.pooling.methods.mean import MeanPool
from cenote.pooling.output import PooledGroup, PoolerOutput, pack_outputs
from cenote.pooling.pooler import Pooler
from cenote.pooling.poolers.sequence import SequencePooler

TASK_SETS: list[tuple[Task, ...]] = [("embed",), ("embed", "token_embed"), ("token_embed",), ("token_embed", "embed")]


class RowsPooler(Pooler):
    """Every row as it is: the plainest pooler that vLLM's contract allows."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, list[int], list[int]]] = []

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset({"token_embed"})

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        cursor = pooling_metadata.get_pooling_cursor()
        first, last = cursor.first_token_indices_gpu.tolist(), cursor.last_token_indices_gpu.tolist()
        self.seen.append((hidden_states.shape[0], first, last))
        return split(hidden_states, cursor.num_scheduled_tokens_cpu.tolist())


def embed_pooler(pooling: SequencePoolingMethod) -> SequencePooler:
    options = EmbeddingOptions(DimensionRule(6, ()), normalize=False)
    return SequencePooler(pooling, EmbeddingPoolerHead(nn.Identity(), options))


def dispatcher(pooling: SequencePoolingMethod | None = None) -> DispatchPooler:
    return DispatchPooler({"embed": embed_pooler(pooling or CLSPool()), "token_embed": RowsPooler()})


def by_sequence(groups: Sequence[PooledGroup]) -> dict[tuple[int, Task], np.ndarray]:
    flat = pack_outputs(groups)
    host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
    return {(entry.sequence, entry.task): entry.view(host) for entry in flat.entries}


@given(lengths=SOME_LENGTHS, data=st.data())
def test_every_sequence_gets_its_own_rows_for_each_of_its_tasks(lengths: list[int], data: st.DataObject) -> None:
    tasks = [data.draw(st.sampled_from(TASK_SETS)) for _ in lengths]
    rows = hidden_rows(lengths)
    found = by_sequence(dispatcher()(rows, Step(lengths, tasks=tasks).metadata()))
    assert set(found) == {(index, task) for index, wanted in enumerate(tasks) for task in wanted}
    for index, part in enumerate(split(rows, lengths)):
        if "embed" in tasks[index]:
            np.testing.assert_array_equal(found[index, "embed"], part[0].numpy())
        if "token_embed" in tasks[index]:
            np.testing.assert_array_equal(found[index, "token_embed"], part.numpy())


def test_the_first_run_is_unshifted_and_later_ones_count_from_their_slice() -> None:
    pooler = dispatcher()
    tasks: list[tuple[Task, ...]] = [("token_embed",), ("embed",), ("token_embed",), ("token_embed",)]
    pooler(hidden_rows([2, 3, 1, 4]), Step([2, 3, 1, 4], tasks=tasks).metadata())
    rows_pooler = pooler.poolers_by_task["token_embed"]
    assert isinstance(rows_pooler, RowsPooler)
    assert rows_pooler.seen == [(2, [0], [1]), (5, [0, 1], [0, 4])]


def test_equal_sets_in_another_order_are_one_run() -> None:
    tasks: list[tuple[Task, ...]] = [("embed", "token_embed"), ("token_embed", "embed")]
    groups = dispatcher()(hidden_rows([2, 3]), Step([2, 3], tasks=tasks).metadata())
    assert sorted((group.task, list(group.sequences)) for group in groups) == [
        ("embed", [0, 1]),
        ("token_embed", [0, 1]),
    ]


def test_an_empty_step_gives_nothing() -> None:
    flat = pack_outputs(dispatcher()(hidden_rows([]), Step([]).metadata()))
    assert (flat.buffers, flat.entries) == ({}, [])


def test_an_unknown_task_is_an_error() -> None:
    pooler = dispatcher()
    with pytest.raises(UnsupportedTaskError, match="'classify'; it offers: embed, token_embed"):
        pooler(hidden_rows([2]), Step([2], task="classify").metadata())
    with pytest.raises(UnsupportedTaskError):
        pooler.verify_params("classify", PoolingParams(task="classify"))


def test_rows_that_do_not_add_up_are_an_error() -> None:
    with pytest.raises(EngineError, match="4 hidden states for 3 scheduled tokens"):
        dispatcher()(hidden_rows([4]), Step([3]).metadata())


def test_a_pooler_must_support_the_task_it_stands_for() -> None:
    with pytest.raises(EngineError, match="RowsPooler"):
        DispatchPooler({"embed": RowsPooler()})


def test_needs_and_params_are_routed_by_task() -> None:
    pooler = dispatcher()
    assert pooler.get_supported_tasks() == {"embed", "token_embed"}
    assert pooler.get_pooling_updates("token_embed").requires_token_ids
    assert not pooler.get_pooling_updates("embed").requires_token_ids
    pooler.verify_params("embed", PoolingParams(task="embed", dimensions=3))
    with pytest.raises(InputError, match="dimensions"):
        pooler.verify_params("embed", PoolingParams(task="embed", dimensions=7))
    with pytest.raises(InputError, match="does not support 'step_tag_id'"):
        pooler.verify_params("embed", PoolingParams(task="embed", step_tag_id=1))


def chunks_of(lengths: list[int], data: st.DataObject) -> list[list[int]]:
    """Cut each length into chunks at random."""
    return [_cut(length, data) for length in lengths]


def _cut(length: int, data: st.DataObject) -> list[int]:
    chunks = []
    while length:
        chunks.append(data.draw(st.integers(1, length)))
        length -= chunks[-1]
    return chunks


@given(lengths=SOME_LENGTHS, data=st.data(), method=st.sampled_from([CLSPool, MeanPool, LastPool]))
def test_sequences_in_chunks_equal_whole_ones(
    lengths: list[int], data: st.DataObject, method: type[SequencePoolingMethod]
) -> None:
    tasks = [data.draw(st.sampled_from(TASK_SETS)) for _ in lengths]
    rows = hidden_rows(lengths)
    parts, states = split(rows, lengths), [PoolingStates() for _ in lengths]
    pooler = dispatcher(method())
    whole = by_sequence(pooler(rows, Step(lengths, tasks=tasks).metadata()))
    cuts = chunks_of(lengths, data)
    done = [0] * len(lengths)
    found: dict[tuple[int, Task], np.ndarray] = {}
    while running := [i for i, length in enumerate(lengths) if done[i] < length]:
        chunk = [cuts[i].pop(0) for i in running]
        buffer = torch.cat([parts[i][done[i] : done[i] + n] for i, n in zip(running, chunk, strict=True)])
        for i, n in zip(running, chunk, strict=True):
            done[i] += n
        step = Step(
            chunk,
            tasks=[tasks[i] for i in running],
            prompt_lens=[lengths[i] for i in running],
            seq_lens=[done[i] for i in running],
            states=[states[i] for i in running],
        )
        answers = by_sequence(pooler(buffer, step.metadata()))
        buffer.fill_(torch.nan)
        found |= {(running[position], task): values for (position, task), values in answers.items()}
    assert set(found) == set(whole)
    assert all(not state.hidden_states_cache for state in states)
    for key, values in whole.items():
        np.testing.assert_allclose(found[key], values, atol=1e-6)


def test_only_what_needs_all_rows_is_kept() -> None:
    last_only, mixed = PoolingStates(), PoolingStates()
    tasks: list[tuple[Task, ...]] = [("embed",), ("embed", "token_embed")]
    step = Step([2, 2], tasks=tasks, prompt_lens=[4, 4], seq_lens=[2, 2], states=[last_only, mixed])
    assert dispatcher(LastPool())(hidden_rows([2, 2]), step.metadata()) == []
    assert last_only.hidden_states_cache == []
    assert len(mixed.hidden_states_cache) == 1


def test_a_sequence_that_lost_a_chunk_is_an_error() -> None:
    with pytest.raises(EngineError, match="4 tokens has 2 hidden states"):
        dispatcher()(hidden_rows([2]), Step([2], prompt_lens=[4], seq_lens=[4]).metadata())


def test_a_step_of_every_kind_runs_on_a_device_without_values() -> None:
    meta = torch.device("meta")
    tasks = [TASK_SETS[i % len(TASK_SETS)] for i in range(4)]
    params = [{"dimensions": 1 + i, "use_activation": bool(i % 2)} for i in range(4)]
    pooler = DispatchPooler({"embed": embed_pooler(MeanPool()), "token_embed": RowsMetaPooler()})
    step = Step([2, 3, 1, 4], tasks=tasks, params=params, prompt_lens=[2, 5, 1, 4], seq_lens=[2, 3, 1, 4], device=meta)
    flat = pack_outputs(pooler(torch.empty(10, 6, device=meta), step.metadata()))
    assert flat.buffers[torch.float32].shape == (sum(entry.size for entry in flat.entries),)


class RowsMetaPooler(RowsPooler):
    """The same without looking at the device's positions."""

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        return split(hidden_states, pooling_metadata.get_pooling_cursor().num_scheduled_tokens_cpu.tolist())

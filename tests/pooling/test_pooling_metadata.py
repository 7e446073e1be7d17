"""The cursor and the metadata: host facts worked out once, again for a slice, and for a slice of a slice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import CPU, SOME_LENGTHS, Step, hidden_rows

from cenote.errors import EngineError, InputError
from cenote.params import PoolingParams, PoolingParamsUpdate
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_build_pooling_cursor_caches_cpu_status() -> None:
    cursor = build_pooling_cursor(ints(3, 2, 4), ints(3, 5, 4), ints(3, 2, 4), CPU)
    assert cursor.partial_prefill is cursor.is_partial_prefill() is True
    assert cursor.finished_mask is cursor.get_finished_mask()
    assert cursor.get_finished_mask() == cursor.is_finished().tolist() == [True, False, True]
    assert cursor.first_token_indices_gpu.tolist() == [0, 3, 5]
    assert cursor.last_token_indices_gpu.tolist() == [2, 4, 8]


def test_a_slice_works_its_status_out_again() -> None:
    cursor = build_pooling_cursor(ints(3, 2, 4), ints(3, 5, 4), ints(3, 2, 4), CPU)
    assert not cursor[:1].is_partial_prefill()
    assert cursor[1:].is_partial_prefill()
    assert cursor[1:].get_finished_mask() == [False, True]
    assert not cursor[1:][1:].is_partial_prefill()
    assert cursor[1:][1:].first_token_indices_gpu.tolist() == [5]


def test_the_last_chunk_is_finished_and_still_partial() -> None:
    cursor = build_pooling_cursor(ints(2), ints(5), ints(5), CPU)
    assert cursor.is_partial_prefill()
    assert cursor.get_finished_mask() == [True]


def test_the_batchs_own_row_counts_are_used_without_an_upload() -> None:
    starts = torch.tensor([0, 3, 5], dtype=torch.int32)
    cursor = build_pooling_cursor(ints(3, 2), ints(3, 2), ints(3, 2), CPU, starts)
    assert cursor.first_token_indices_gpu.data_ptr() == starts.data_ptr()
    assert cursor.last_token_indices_gpu.tolist() == [2, 4]


@pytest.mark.parametrize(
    "starts", [torch.zeros(2, dtype=torch.int32), torch.zeros(3, dtype=torch.int32, device="meta")]
)
def test_row_counts_of_another_batch_are_refused(starts: torch.Tensor) -> None:
    with pytest.raises(EngineError, match="query_start_loc_gpu"):
        build_pooling_cursor(ints(3, 2), ints(3, 2), ints(3, 2), CPU, starts)


def test_a_sequence_without_rows_is_refused() -> None:
    with pytest.raises(EngineError, match="at least one row"):
        build_pooling_cursor(ints(3, 0), ints(3, 1), ints(3, 1), CPU)


def test_an_empty_step_has_a_cursor() -> None:
    cursor = build_pooling_cursor(ints(), ints(), ints(), CPU)
    assert not cursor.is_partial_prefill()
    assert cursor.get_finished_mask() == []
    assert cursor.last_token_indices_gpu.shape == (0,)


@given(lengths=SOME_LENGTHS, data=st.data())
def test_a_slice_of_a_slice_equals_the_slice_built_anew(lengths: list[int], data: st.DataObject) -> None:
    prompt = [length + data.draw(st.integers(0, 2)) for length in lengths]
    seq = [data.draw(st.integers(length, limit)) for length, limit in zip(lengths, prompt, strict=True)]
    metadata = Step(lengths, prompt_lens=prompt, seq_lens=seq).metadata()
    start = data.draw(st.integers(0, len(lengths)))
    inner = data.draw(st.integers(0, len(lengths) - start))
    part = metadata[start:][inner:]
    cut = slice(start + inner, None)
    fresh = build_pooling_cursor(ints(*lengths[cut]), ints(*prompt[cut]), ints(*seq[cut]), CPU)
    cursor = part.get_pooling_cursor()
    shifted = cursor.shifted(sum(lengths[: start + inner]))
    assert len(part) == len(lengths[cut])
    assert part.prompt_lens.tolist() == cursor.prompt_lens_cpu.tolist() == prompt[cut]
    assert (cursor.partial_prefill, cursor.finished_mask) == (fresh.partial_prefill, fresh.finished_mask)
    assert torch.equal(shifted.first_token_indices_gpu, fresh.first_token_indices_gpu)
    assert torch.equal(shifted.last_token_indices_gpu, fresh.last_token_indices_gpu)
    assert torch.equal(cursor.num_scheduled_tokens_cpu, fresh.num_scheduled_tokens_cpu)


def test_pooling_params_update_combines_token_id_requirements() -> None:
    without, needs = PoolingParamsUpdate(), PoolingParamsUpdate(requires_token_ids=True)
    assert (without | without) == without
    assert (without | needs) == (needs | without) == (needs | needs) == needs
    assert needs.apply(PoolingParams(task="embed")).requires_token_ids
    assert not without.apply(PoolingParams(task="embed")).requires_token_ids
    assert without.apply(PoolingParams(task="embed", requires_token_ids=True)).requires_token_ids


def test_slicing_slices_everything() -> None:
    metadata = Step(
        [1, 2, 3], token_ids=[[7], [8, 9], [1, 2, 3]], params=[{"dimensions": d} for d in (1, 2, 3)]
    ).metadata()
    part = metadata[1:]
    assert [params.dimensions for params in part.pooling_params] == [2, 3]
    assert [ids.tolist() for ids in part.get_prompt_token_ids_cpu()] == [[8, 9], [1, 2, 3]]
    assert part.pooling_states[0] is metadata.pooling_states[1]
    assert part.tasks == ["embed", "embed"]


def test_token_ids_are_host_tensors_that_share_the_prompts_memory() -> None:
    metadata = Step([2], token_ids=[[8, 9]]).metadata()
    (ids,) = metadata.get_prompt_token_ids_cpu()
    assert ids.device == CPU
    assert ids.data_ptr() == metadata.get_prompt_token_ids_np()[0].ctypes.data


def test_absent_token_ids_are_an_error_that_names_the_cure() -> None:
    with pytest.raises(EngineError, match="requires_token_ids"):
        Step([2]).metadata().get_prompt_token_ids_cpu()


def test_metadata_without_cursor_or_task_says_so() -> None:
    bare = PoolingMetadata(
        prompt_lens=torch.tensor([1]),
        params_by_task=[{"embed": PoolingParams()}],
        token_ids_np=[None],
        pooling_states=[PoolingStates()],
    )
    with pytest.raises(EngineError, match="no cursor"):
        bare.get_pooling_cursor()
    with pytest.raises(InputError, match="task must be set"):
        _ = bare.pooling_params


def test_params_follow_the_current_task() -> None:
    metadata = Step([1], tasks=[("embed", "token_embed")], params=[{"dimensions": 4}]).metadata()
    assert metadata.task_sets == [frozenset({"embed", "token_embed"})]
    assert metadata.for_task("token_embed").tasks == ["token_embed"]
    with pytest.raises(EngineError, match="for_task"):
        _ = metadata.pooling_params


def test_cleaning_a_state_frees_its_rows() -> None:
    state = PoolingStates([hidden_rows([3])])
    state.clean()
    assert state.hidden_states_cache == []

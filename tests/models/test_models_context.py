"""Chunks equal the whole, and a shared prefix equals computing it again, for every causal family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import load_tiny

from cenote.models.batch import pack
from cenote.models.context import EarlierChunks, KeyValueCache, SharedPrefix
from cenote.models.load import LoadedModel
from tiny import CheckpointFactory
from tolerances import assert_close

CAUSAL = ["qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=CAUSAL)
def model(request: pytest.FixtureRequest, checkpoint: CheckpointFactory) -> LoadedModel:
    return load_tiny(checkpoint(request.param))


def some_ids(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(5, 190, length).tolist()


def run_in_chunks(model: LoadedModel, ids: list[int], cuts: list[int]) -> torch.Tensor:
    cache = KeyValueCache(len(ids))
    rows = []
    for start, stop in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        neighbour = some_ids(7, seed=stop)
        batch = pack([neighbour, ids[start:stop]], device=CPU, contexts=[None, EarlierChunks(cache, start)])
        rows.append(model.backbone(batch)[len(neighbour) :])
    return torch.cat(rows)


@torch.inference_mode()
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(2, 60), st.sets(st.integers(1, 59), max_size=6), st.integers(0, 1000))
def test_random_chunkings_equal_the_whole(model: LoadedModel, length: int, cuts: set[int], seed: int) -> None:
    ids = some_ids(length, seed)
    whole = model.backbone(pack([ids], device=CPU))
    chunked = run_in_chunks(model, ids, sorted(cut for cut in cuts if cut < length))
    assert_close(chunked, whole, "chunked")


@torch.inference_mode()
def test_a_chunk_may_run_again(model: LoadedModel) -> None:
    """A failed step is run again in smaller parts: keys and values written twice are the same."""
    ids = some_ids(20)
    whole = model.backbone(pack([ids], device=CPU))
    cache = KeyValueCache(len(ids))
    for start, stop in [(0, 8), (0, 8), (8, 20)]:
        rows = model.backbone(pack([ids[start:stop]], device=CPU, contexts=[EarlierChunks(cache, start)]))
    assert_close(rows, whole[8:], "chunked")


@torch.inference_mode()
def test_a_shared_prefix_equals_computing_it_again(model: LoadedModel) -> None:
    prefix, ends = some_ids(11), [some_ids(n, seed=n) for n in (5, 5, 1, 9)]
    shared = SharedPrefix(start=0, num_rows=len(prefix))
    packed = model.backbone(pack([prefix, *ends], device=CPU, contexts=[None, *[shared] * len(ends)]))
    rows = packed[len(prefix) :].split([len(end) for end in ends])
    for end, got in zip(ends, rows, strict=True):
        alone = model.backbone(pack([prefix + end], device=CPU))
        assert_close(got, alone[len(prefix) :], "chunked")


def test_a_cache_is_exactly_as_long_as_its_sequence(model: LoadedModel) -> None:
    cache = KeyValueCache(20)
    with torch.inference_mode():
        model.backbone(pack([some_ids(6)], device=CPU, contexts=[EarlierChunks(cache, 0)]))
    assert sorted(cache.layers) == list(range(model.module.config.num_hidden_layers))
    assert {rows.shape[1] for layer in cache.layers.values() for rows in layer} == {20}

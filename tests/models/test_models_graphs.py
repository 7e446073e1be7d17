"""Steps laid into buckets equal the steps themselves. The recorder is a stand-in: it runs the recorded call again.

That a CUDA graph does the same needs a GPU; what is tested here is all that surrounds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import load_tiny, pack_for, random_texts
from torch.nn import functional as F

from cenote.models import attention
from cenote.models.attention_path import AttentionPath
from cenote.models.graphs import BUCKETS, GraphedBackbone
from cenote.models.load import LoadedModel
from tiny import CheckpointFactory
from tolerances import assert_close


def record(run: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Callable[[], None]]:
    output = run()

    def replay() -> None:
        output.copy_(run())

    return output, replay


def plain_varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cu_queries: torch.Tensor, *_: object, **options: object
) -> torch.Tensor:
    """What the GPU's kernel does with `cu_seqlens`, read as plain numbers; no windows, as many keys as rows."""
    outputs = []
    bounds = cu_queries.tolist()
    for start, stop in pairwise(bounds):
        parts = (part[start:stop].transpose(0, 1)[None] for part in (query, key, value))
        causal = options["window_size"] == (-1, 0)
        gqa = bool(options["enable_gqa"])
        scale = options["scale"]
        outputs.append(F.scaled_dot_product_attention(*parts, is_causal=causal, scale=scale, enable_gqa=gqa)[0])
    return torch.cat(outputs, dim=1).transpose(0, 1).contiguous()


@pytest.fixture(scope="module", params=["bert", "xlm-roberta", "qwen3"])
def graphed(request: pytest.FixtureRequest, checkpoint: CheckpointFactory) -> tuple[LoadedModel, GraphedBackbone]:
    model = load_tiny(checkpoint(request.param))
    other = load_tiny(checkpoint(request.param))
    other.backbone.path = AttentionPath(path="varlen", reason="as on a GPU")
    backbone = GraphedBackbone(other.backbone, uses_token_types=other.uses_token_types)
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(attention, "varlen_attn", plain_varlen)
        backbone.capture(torch.device("cpu"), record)
    return model, backbone


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 99))
def test_a_step_in_its_bucket_equals_the_step(
    graphed: tuple[LoadedModel, GraphedBackbone], lengths: list[int], seed: int
) -> None:
    model, backbone = graphed
    batch = pack_for(model, random_texts(lengths, seed=seed))
    if model.uses_token_types:
        batch = replace(batch, token_type_ids_T=batch.input_ids_T % 2)
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(attention, "varlen_attn", plain_varlen)
        assert (backbone._graph_for(batch) is None) == (sum(lengths) > max(BUCKETS))
        assert_close(backbone(batch), model.backbone(batch), "raw")


def test_as_many_texts_as_tokens_fit(graphed: tuple[LoadedModel, GraphedBackbone]) -> None:
    model, backbone = graphed
    batch = pack_for(model, random_texts([1] * BUCKETS[0]))
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(attention, "varlen_attn", plain_varlen)
        assert_close(backbone(batch), model.backbone(batch), "raw")


def test_filled_up_texts_are_not_replayed(graphed: tuple[LoadedModel, GraphedBackbone]) -> None:
    model, backbone = graphed
    batch = pack_for(model, random_texts([9, 4]), num_keys=[5, 4])
    assert backbone._graph_for(batch) is None

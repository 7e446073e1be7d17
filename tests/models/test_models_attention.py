"""Packed attention against its slow reference twin: ragged lengths, causal, windows, softcap, bias, GQA, fewer keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models.attention import attend
from cenote.models.attention_path import AttentionNeeds, AttentionPath, choose_attention
from cenote.models.attention_reference import attend_reference
from cenote.models.attention_step import AttentionStep, LayerAttention
from cenote.models.batch import PackedBatch, pack
from tolerances import assert_close

CPU = torch.device("cpu")
RUNS = AttentionPath(path="runs", reason="test")
HEAD_DIM = 8


def make_batch(lengths: list[int], num_keys: list[int] | None = None) -> PackedBatch:
    return pack([[0] * length for length in lengths], device=CPU, num_keys=num_keys)


def make_heads(num_rows: int, num_heads: int, *, seed: int = 0) -> torch.Tensor:
    """Random heads `[A, T, D]`, laid out in memory as a linear layer gives them."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(num_rows, num_heads, HEAD_DIM, generator=generator)).transpose(0, 1)


def check(batch: PackedBatch, layer: LayerAttention, *, heads: int = 4, groups: int = 4) -> None:
    query, key, value = (make_heads(batch.num_tokens, n, seed=s) for s, n in enumerate((heads, groups, groups)))
    actual = attend(AttentionStep(batch, RUNS), query, key, value, layer)
    assert_close(actual, attend_reference(batch, query, key, value, layer), "raw")


@st.composite
def cases(draw: st.DrawFn) -> tuple[PackedBatch, LayerAttention, int]:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    fewer = draw(st.booleans())
    num_keys = [draw(st.integers(1, length)) for length in lengths] if fewer else None
    softcap = draw(st.sampled_from([None, 1.5]))
    causal = draw(st.booleans()) and not fewer
    has_bias = softcap is None and not causal and draw(st.booleans())
    longest = max(lengths)
    bias = make_heads(longest * longest, 4, seed=9)[..., 0].reshape(1, 4, longest, longest) if has_bias else None
    window = draw(st.sampled_from([None, 1, 2, 4]))
    layer = LayerAttention(scaling=0.3, causal=causal, window=window, softcap=softcap, bias=bias)
    return make_batch(lengths, num_keys), layer, draw(st.sampled_from([1, 2, 4]))


@given(cases())
@settings(max_examples=300, deadline=None)
def test_runs_equal_the_reference(case: tuple[PackedBatch, LayerAttention, int]) -> None:
    batch, layer, groups = case
    check(batch, layer, groups=groups)


@pytest.mark.parametrize("lengths", [[5], [3, 3, 3], [1, 1, 2, 2, 1], [40, 1, 40]])
@pytest.mark.parametrize("causal", [True, False])
def test_named_shapes(lengths: list[int], causal: bool) -> None:
    check(make_batch(lengths), LayerAttention(scaling=0.3, causal=causal))


def test_softcap_over_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.models.attention._SOFTCAP_TILE", 1)
    check(make_batch([9, 4]), LayerAttention(scaling=0.3, causal=True, softcap=2.0), groups=2)


def test_rows_beyond_the_keys_attend_but_are_not_seen() -> None:
    batch = make_batch([6], [4])
    query, key, value = (make_heads(6, 2, seed=seed) for seed in range(3))
    layer = LayerAttention(scaling=0.3, causal=False)
    whole = attend(AttentionStep(batch, RUNS), query, key, value, layer)
    value[:, 4:] = 100.0
    key[:, 4:] = 100.0
    assert torch.equal(whole, attend(AttentionStep(batch, RUNS), query, key, value, layer))
    assert whole[4:].abs().sum() > 0


def needs(**changes: object) -> AttentionNeeds:
    card = {"device_type": "cuda", "dtype": torch.bfloat16, "capability": (9, 0), "head_dim": 64}
    return AttentionNeeds(**{**card, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "name", "word"),
    [
        ({}, "varlen", "half precision"),
        ({"dtype": torch.float32}, "runs", "float32"),
        ({"capability": (7, 5)}, "runs", "7.5"),
        ({"softcap": True}, "runs", "caps"),
        ({"bias": True}, "runs", "bias"),
        ({"head_dim": 300}, "runs", "300"),
        ({"head_dim": 36}, "runs", "36"),
        ({"device_type": "cpu", "capability": None}, "runs", "cpu"),
        ({"padded": True}, "padded", "own attention"),
    ],
)
def test_the_choice_of_the_path_names_its_reason(changes: dict[str, object], name: str, word: str) -> None:
    path = choose_attention(needs(**changes))
    assert path.path == name
    assert word in path.reason


@pytest.mark.parametrize(
    ("layer", "window"),
    [
        (LayerAttention(scaling=0.3, causal=False), (-1, -1)),
        (LayerAttention(scaling=0.3, causal=True), (-1, 0)),
        (LayerAttention(scaling=0.3, causal=True, window=4), (3, 0)),
        (LayerAttention(scaling=0.3, causal=False, window=4), (3, 3)),
    ],
)
def test_what_the_varlen_kernel_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, layer: LayerAttention, window: tuple[int, int]
) -> None:
    seen: list[dict[str, object]] = []

    def kernel(query: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        seen.append(options)
        return query

    monkeypatch.setattr("cenote.models.attention.varlen_attn", kernel)
    step = AttentionStep(make_batch([5, 3]), AttentionPath(path="varlen", reason="test"))
    attend(step, make_heads(8, 4), make_heads(8, 2), make_heads(8, 2), layer)
    assert seen == [{"scale": 0.3, "window_size": window, "enable_gqa": True, "seqused_k": None}]

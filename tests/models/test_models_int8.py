"""Int8 layers: the formula of a layer, rows that do not know of each other, every family, and what is refused."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import load_tiny, random_texts, run_packed
from torch import nn
from torch.nn import functional as F

from cenote.errors import OptionError
from cenote.models.int8 import Int8Linear, quantize_rows, weight_steps
from cenote.models.rewrite import rewrite
from tiny import FAMILIES, CheckpointFactory

SEEDS = st.integers(0, 2**32 - 1)


def linear_of(seed: int, inputs: int = 96, outputs: int = 64, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)


@given(SEEDS, st.integers(1, 9), st.sampled_from([1e-6, 1.0, 1e4]))
def test_rows_are_whole_numbers_to_half_a_step(seed: int, num_rows: int, size: float) -> None:
    rows = torch.randn(num_rows, 70, generator=torch.Generator().manual_seed(seed)) * size
    whole, scale, offset = quantize_rows(rows)
    whole = whole.to(torch.uint8)
    assert int(whole.max()) >= 254
    assert int(whole.min()) == 0
    off = (offset + scale * whole - rows).abs()
    assert bool((off <= 0.501 * scale).all())


@given(SEEDS, st.floats(-1, 1))
def test_the_extremes_of_a_row_stay_within_eight_bits(seed: int, middle: float) -> None:
    """The smallest and the largest number may both be rounded up, or away from each other."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(2000, 2, generator=generator) * 2 - 1 + middle
    whole, scale, offset = quantize_rows(rows)
    off = (offset + scale * whole.to(torch.uint8) - rows).abs()
    assert bool((off <= 0.501 * scale).all())


def test_a_smallest_number_halfway_between_two_stays_within_eight_bits() -> None:
    """Where its own rounding goes one way and the offset's the other, it would wrap around to the largest."""
    generator = torch.Generator().manual_seed(0)
    size = torch.rand(20_000, 1, generator=generator, dtype=torch.float64) + 0.01
    half = torch.randint(0, 253, (20_000, 1), generator=generator) + 0.5
    rows = torch.cat([-half * size, (254 - half) * size], dim=1).float()
    whole, scale, offset = quantize_rows(rows)
    off = (offset + scale * whole.to(torch.uint8) - rows).abs()
    assert bool((off <= 0.501 * scale).all())


def test_a_row_of_equal_values_is_exact() -> None:
    rows = torch.tensor([[0.0] * 64, [-3.5] * 64, [3.5] * 64])
    whole, scale, offset = quantize_rows(rows)
    torch.testing.assert_close(offset + scale * whole.to(torch.uint8), rows)


def test_zero_is_exact() -> None:
    rows = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    rows[:, 7] = 0
    whole, scale, offset = quantize_rows(rows)
    torch.testing.assert_close((offset + scale * whole.to(torch.uint8))[:, 7], torch.zeros(50), atol=1e-6, rtol=0)


@given(SEEDS, st.booleans(), st.sampled_from([96, 1024, 2100]))
def test_a_layer_is_the_formula_in_whole_numbers(seed: int, bias: bool, num_inputs: int) -> None:
    """The integer products are exact, also at the extremes of both ranges; long channels go group by group."""
    linear = linear_of(seed, num_inputs, bias=bias)
    linear.weight[0] = linear.weight[0].abs().max()
    rows = torch.randn(5, num_inputs, generator=torch.Generator().manual_seed(seed))
    rows[0] = rows[0].abs().max()
    rows[0, 0] = -rows[0, 0]
    whole, scale, offset = quantize_rows(rows)
    whole = whole.to(torch.uint8)
    size = 700 if num_inputs == 2100 and weight_steps() == 63 else num_inputs
    expected = torch.zeros(5, 64, dtype=torch.float64)
    for weight, part in zip(linear.weight.split(size, dim=1), whole.split(size, dim=1), strict=True):
        channel_scale = weight.abs().amax(dim=1) / weight_steps()
        whole_weight = torch.round(weight / channel_scale[:, None]).double()
        expected += scale * channel_scale * (part.double() @ whole_weight.T)
        expected += offset * channel_scale * whole_weight.sum(dim=1)
    expected += linear.bias if bias else 0
    layer, residual = Int8Linear(linear), torch.randn(5, 64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(layer(rows).double(), expected, atol=2e-4, rtol=1e-5)
    added = layer.add_to(residual.clone(), rows.clone())
    torch.testing.assert_close(added.double(), residual + expected, atol=2e-4, rtol=1e-5)


@given(SEEDS)
def test_a_row_does_not_depend_on_its_neighbours(seed: int) -> None:
    layer = Int8Linear(linear_of(seed))
    rows = torch.randn(7, 96, generator=torch.Generator().manual_seed(seed))
    together = layer(torch.cat([rows, 1000 * rows]))[:7]
    torch.testing.assert_close(together, torch.cat([layer(row[None]) for row in rows]), atol=1e-5, rtol=1e-5)
    assert layer(rows[None]).shape == (1, 7, 64)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"t5", "mt5"}))
def test_every_family_stays_close_to_float32(family: str, checkpoint: CheckpointFactory) -> None:
    folder = checkpoint(family)
    texts = random_texts([3, 17, 40])
    loaded = load_tiny(folder)
    before = run_packed(loaded, texts)
    done = rewrite(loaded, "int8")
    assert done is not None
    assert "7-bit weights" in done.reason or "8-bit weights" in done.reason
    assert any(isinstance(module, Int8Linear) for module in loaded.backbone.modules())
    for fp32, int8 in zip(before, run_packed(loaded, texts), strict=True):
        assert float(F.cosine_similarity(fp32.flatten(), int8.flatten(), dim=0)) > 0.98
        assert not torch.equal(fp32, int8)
    for number, text in enumerate(texts):
        alone = run_packed(loaded, [text])[0]
        torch.testing.assert_close(alone, run_packed(loaded, texts)[number], atol=0.1, rtol=0.02)


def test_the_weights_in_float32_are_let_go(checkpoint: CheckpointFactory) -> None:
    loaded = load_tiny(checkpoint("bert"))
    weights = [weakref.ref(module) for module in loaded.backbone.modules() if type(module) is nn.Linear]
    rewrite(loaded, "int8")
    gc.collect()
    alive = [module for module in (ref() for ref in weights) if module is not None]
    pooler = loaded.module.base_model.pooler
    assert alive == ([] if pooler is None else [pooler.dense])


def test_t5_is_refused_by_name(checkpoint: CheckpointFactory) -> None:
    with pytest.raises(OptionError, match="int8 is not supported for T5"):
        rewrite(load_tiny(checkpoint("t5")), "int8")


def test_the_largest_products_do_not_overflow() -> None:
    """Without VNNI two products of 255 and 127 are added in 16 bits, silently; the weights are kept small enough."""
    linear = nn.Linear(64, 64, bias=False).requires_grad_(False)
    linear.weight.fill_(1.0)
    rows = torch.full((3, 64), 1.0)
    rows[:, 0] = 0.0
    np.testing.assert_allclose(Int8Linear(linear)(rows).numpy(), 63.0, rtol=1e-5)

"""Prepacked layers: the formula, every family against its plain weights, what is let go, and where nothing is done."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import load_tiny, random_texts, run_packed
from torch import nn

from cenote.errors import CheckpointError
from cenote.models.fused import round_rows
from cenote.models.prepacked import PrepackedLinear
from cenote.models.rewrite import rewrite
from tiny import FAMILIES, CheckpointFactory
from tolerances import assert_close

T5 = {"t5", "mt5"}


@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.booleans())
def test_a_layer_is_the_formula(seed: int, num_rows: int, bias: bool) -> None:
    torch.manual_seed(seed)
    linear = nn.Linear(96, 64, bias=bias).requires_grad_(False)
    rows, residual = torch.randn(num_rows, 96), torch.randn(num_rows, 64)
    expected = rows.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    layer = PrepackedLinear(linear)
    tolerance = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(layer(rows).double(), expected, **tolerance)
    torch.testing.assert_close(layer(rows[None])[0], layer(rows), **tolerance)
    torch.testing.assert_close(layer.add_to(residual.clone(), rows).double(), residual + expected, **tolerance)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - T5))
def test_every_family_gives_the_same_numbers(family: str, checkpoint: CheckpointFactory) -> None:
    texts = random_texts([3, 17, 40])
    loaded = load_tiny(checkpoint(family))
    before = run_packed(loaded, texts)
    done = rewrite(loaded, "float32")
    assert done is not None
    assert done.value == "prepacked"
    layers = [module for module in loaded.backbone.modules() if isinstance(module, PrepackedLinear)]
    assert done.reason.startswith(f"{len(layers)} layers")
    assert layers
    for plain, packed in zip(before, run_packed(loaded, texts), strict=True):
        assert_close(packed, plain, "raw")


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_every_activation_is_its_own(checkpoint: CheckpointFactory, activation: str) -> None:
    texts = random_texts([5, 40])
    loaded = load_tiny(checkpoint("bert", hidden_act=activation))
    before = run_packed(loaded, texts)
    rewrite(loaded, "float32")
    for plain, packed in zip(before, run_packed(loaded, texts), strict=True):
        assert_close(packed, plain, "raw")


def test_the_plain_weights_are_let_go(checkpoint: CheckpointFactory) -> None:
    loaded = load_tiny(checkpoint("bert"))
    weights = [weakref.ref(module) for module in loaded.backbone.layers.modules() if type(module) is nn.Linear]
    rewrite(loaded, "float32")
    gc.collect()
    assert weights
    assert all(ref() is None for ref in weights)


@pytest.mark.parametrize(("family", "dtype"), [("t5", torch.float32), ("bert", torch.bfloat16)])
def test_other_models_stay_as_they_are(checkpoint: CheckpointFactory, family: str, dtype: torch.dtype) -> None:
    loaded = load_tiny(checkpoint(family), dtype=dtype)
    linears = [module for module in loaded.backbone.modules() if type(module) is nn.Linear]
    assert rewrite(loaded, str(dtype).removeprefix("torch.")) is None
    assert linears == [module for module in loaded.backbone.modules() if type(module) is nn.Linear]


def test_a_wrong_product_is_refused(checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = PrepackedLinear.forward
    monkeypatch.setattr(
        PrepackedLinear, "forward", lambda self, rows, *activation: forward(self, rows, *activation).flip(-1)
    )
    with pytest.raises(CheckpointError, match="prepacked weights give other numbers"):
        rewrite(load_tiny(checkpoint("bert")), "float32")


@given(st.integers(1, 20_000))
def test_rows_are_rounded_by_little(num_rows: int) -> None:
    assert num_rows <= round_rows(num_rows) <= num_rows * 17 / 16
    octave = 1 << num_rows.bit_length() - 1
    assert len({round_rows(n) for n in range(octave, 2 * octave)}) <= 17


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products_know_few_numbers_of_rows_and_nobody_sees_the_others(
    dtype: str, checkpoint: CheckpointFactory
) -> None:
    """oneDNN keeps what it prepares for each number. Every number of tokens gives the rows of the text alone."""
    loaded = load_tiny(checkpoint("bert"))
    rewrite(loaded, dtype)
    seen: set[int] = set()
    loaded.backbone.layers[0].up.register_forward_pre_hook(lambda _, arguments: seen.add(len(arguments[0])))
    alone = run_packed(loaded, random_texts([40]))[0]
    for length in range(24, 64):
        together = run_packed(loaded, [*random_texts([40]), *random_texts([length])])
        assert [len(rows) for rows in together] == [40, length]
        assert_close(together[0], alone, "raw")
    assert seen <= {round_rows(n) for n in range(40, 104)}
    assert len(seen) < 20

"""Labels and token embeddings: fp32, classifier, calibration, activation, each sequence as it asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import Step, hidden_rows, split
from torch import nn

from cenote.errors import CheckpointError, InputError
from cenote.params import PoolingParams
from cenote.pooling.activations import build_activation
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.classifier import ClassifierPoolerHead, LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.heads.embedding import EmbeddingOptions
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from tolerances import assert_close

WISH = st.sampled_from([None, True, False])
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
PLAIN = {
    "identity": lambda logits: logits,
    "sigmoid": torch.sigmoid,
    "softmax": lambda logits: logits.exp() / logits.exp().sum(-1, keepdim=True),
    "auto": lambda logits: torch.sigmoid(logits) if logits.shape[-1] == 1 else logits.softmax(-1),
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
}


def linear(columns: int) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(6, columns).requires_grad_(False)


@pytest.mark.parametrize("activation", PLAIN)
@pytest.mark.parametrize("columns", [1, 3])
@given(wishes=st.lists(WISH, max_size=6), by_default=st.booleans(), dtype=DTYPES)
def test_classify(activation: str, columns: int, wishes: list[Any], by_default: bool, dtype: torch.dtype) -> None:
    classifier = linear(columns)
    head = ClassifierPoolerHead(classifier, LabelOptions(activation, by_default, logit_mean=0.5, logit_sigma=2.0))
    rows = hidden_rows([1] * len(wishes), dtype=dtype)
    step = Step([1] * len(wishes), task="classify", params=[{"use_activation": wish} for wish in wishes])
    outputs = head(rows, step.metadata())
    assert outputs.dtype == torch.float32
    assert outputs.shape == (len(wishes), columns)
    for row, output, wish in zip(rows, outputs, wishes, strict=True):
        logits = (classifier(row.float()) - 0.5) / 2.0
        wanted = by_default if wish is None else wish
        assert_close(output, PLAIN[activation](logits) if wanted else logits, "raw")


@pytest.mark.parametrize("activation", PLAIN)
@given(texts=st.lists(st.tuples(st.integers(1, 5), WISH), max_size=5), dtype=DTYPES)
def test_token_classify(activation: str, texts: list[tuple[int, Any]], dtype: torch.dtype) -> None:
    lengths = [length for length, _ in texts]
    classifier, rows = linear(3), hidden_rows(lengths, dtype=dtype)
    head = TokenClassifierPoolerHead(classifier, LabelOptions(activation))
    step = Step(lengths, task="token_classify", params=[{"use_activation": wish} for _, wish in texts])
    outputs = head(list(split(rows, lengths)), step.metadata())
    for part, output, (_, wish) in zip(split(rows, lengths), outputs, texts, strict=True):
        logits = classifier(part.float())
        assert output is not None
        assert_close(output, logits if wish is False else PLAIN[activation](logits), "raw")


TOKEN_WISHES = st.fixed_dictionaries({"dimensions": st.sampled_from([None, 2, 5]), "use_activation": WISH})


@given(texts=st.lists(st.tuples(st.integers(1, 5), TOKEN_WISHES), max_size=5), dtype=DTYPES)
def test_token_embed(texts: Sequence[tuple[int, Mapping[str, Any]]], dtype: torch.dtype) -> None:
    lengths = [length for length, _ in texts]
    projector, rows = linear(5), hidden_rows(lengths, dtype=dtype)
    head = TokenEmbeddingPoolerHead(projector, EmbeddingOptions(DimensionRule(5, ()), normalize=True))
    step = Step(lengths, task="token_embed", params=[wish for _, wish in texts])
    outputs = head(list(split(rows, lengths)), step.metadata())
    for part, output, (_, wish) in zip(split(rows, lengths), outputs, texts, strict=True):
        values = projector(part.float())[:, : wish["dimensions"] or 5]
        plain = values if wish["use_activation"] is False else values / values.norm(dim=-1, keepdim=True)
        assert output is not None
        assert_close(output, plain, "raw")


@pytest.mark.parametrize("kind", ["embed", "classify"])
def test_unfinished_sequences_pass_through_the_token_heads(kind: str) -> None:
    heads: dict[str, Any] = {
        "embed": TokenEmbeddingPoolerHead(linear(5), EmbeddingOptions(DimensionRule(5, ()), normalize=True)),
        "classify": TokenClassifierPoolerHead(linear(5), LabelOptions("auto")),
    }
    lengths = [2, 3, 1]
    wishes = [{"use_activation": False}, {"use_activation": True}, {"use_activation": False}]
    parts = split(hidden_rows(lengths), lengths)
    metadata = Step(lengths, task="token_embed", params=wishes).metadata()
    whole = heads[kind](list(parts), metadata)
    gaps = heads[kind]([parts[0], None, parts[2]], metadata)
    assert gaps[1] is None
    assert_close(gaps[0], whole[0], "raw")
    assert_close(gaps[2], whole[2], "raw")
    assert heads[kind]([None, None, None], metadata) == [None, None, None]


def test_one_sigmoid_and_distinct_scores_for_distinct_logits() -> None:
    """BL-09: -8, 0 and 8 become sigmoid(logit) once; 6.5, 7 and 9 stay apart in half precision too."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        logits = torch.tensor([[-8.0], [0.0], [8.0], [6.5], [7.0], [9.0]]).to(dtype)
        head = ClassifierPoolerHead(nn.Identity(), LabelOptions("auto"))
        scores = head(logits, Step([1] * 6, task="classify").metadata())
        assert_close(scores, torch.sigmoid(logits.float()))
        assert len(set(scores.flatten().tolist())) == 6


def test_activations_are_chosen_by_width_where_the_rule_says_so() -> None:
    auto = build_activation("auto")
    assert_close(auto(torch.tensor([[0.0]])), [[0.5]])
    assert_close(auto(torch.tensor([[0.0, 0.0]])), [[0.5, 0.5]])


@pytest.mark.parametrize("name", ["softmax", "Softmax"])
def test_softmax_is_over_the_columns(name: str) -> None:
    assert_close(build_activation(name)(torch.zeros(3, 2)), torch.full((3, 2), 0.5))


@pytest.mark.parametrize(
    "name", ["Linear", "Module", "nothing", "torch.nn.Tanh", "MultiheadAttention", "Threshold", ""]
)
def test_what_is_no_activation_of_torch_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="activation"):
        build_activation(name)


def test_a_sigma_of_zero_is_refused() -> None:
    with pytest.raises(CheckpointError, match="logit_sigma"):
        LabelOptions("auto", logit_sigma=0.0)


def test_a_token_embedding_refuses_a_size_that_it_cannot_give() -> None:
    head = TokenEmbeddingPoolerHead(linear(5), EmbeddingOptions(DimensionRule(5), normalize=True))
    with pytest.raises(InputError, match="dimensions"):
        head.verify_params(PoolingParams(task="token_embed", dimensions=6))

"""The padded path's layout, worked out on the host, and its sub-batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import load_tiny, plain_backbone, random_texts, run_packed, run_plain

from cenote.models.padded import plan_layout
from tiny import CheckpointFactory
from tolerances import assert_close

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=20)


@given(LENGTHS)
def test_every_row_comes_back_to_its_place(lengths: list[int]) -> None:
    lengths_np = np.array(lengths)
    layout = plan_layout(lengths_np, lengths_np)
    assert (layout.gather_np[layout.flatten_np] == np.arange(lengths_np.sum())).all()
    assert layout.is_key_np.sum() == lengths_np.sum()
    assert layout.is_key_np[layout.flatten_np].all()
    assert sum(num_seqs for num_seqs, _ in layout.shapes) == len(lengths)


@given(LENGTHS)
def test_sub_batches_are_well_filled_and_longest_first(lengths: list[int]) -> None:
    layout = plan_layout(np.array(lengths), np.array(lengths))
    padded = sum(num_seqs * longest for num_seqs, longest in layout.shapes)
    assert padded * 0.8 <= sum(lengths)
    longests = [longest for _, longest in layout.shapes]
    assert longests == sorted(longests, reverse=True)
    assert longests[0] == max(lengths)


def test_texts_of_one_sub_batch_do_not_touch_each_other(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("deberta-v2")
    loaded, plain = load_tiny(folder), plain_backbone(folder, "deberta-v2")
    texts = random_texts([10, 9, 10, 8], seed=10)
    for hidden, ids in zip(run_packed(loaded, texts), texts, strict=True):
        assert_close(hidden, run_plain(plain, ids), "raw")


def test_deberta_with_a_convolution_and_absolute_positions(checkpoint: CheckpointFactory) -> None:
    """The xlarge variants: the convolution must see zeros behind a text, not its neighbour's padding."""
    folder = checkpoint(
        "deberta-v2", conv_kernel_size=3, conv_act="gelu", position_biased_input=True, type_vocab_size=2
    )
    loaded, plain = load_tiny(folder), plain_backbone(folder, "deberta-v2")
    texts = random_texts([10, 9, 1, 30], seed=11)
    for hidden, ids in zip(run_packed(loaded, texts), texts, strict=True):
        assert_close(hidden, run_plain(plain, ids), "raw")

"""Every family: a text's hidden states are plain transformers' own, alone, packed with others, in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import load_tiny, plain_backbone, random_texts, run_packed, run_plain

from tiny import FAMILIES, CheckpointFactory
from tolerances import assert_close

SHORT_WINDOWS = ("modernbert", "mistral", "mistral_bidirectional", "gemma2", "gemma3_text", "gemma3_text_bidirectional")
WITH_TOKEN_TYPES = ("bert", "electra", "nomic_bert")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_length_up_to_the_limit(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    texts = random_texts(range(1, FAMILIES[family].limit + 1))
    reference = [run_plain(plain, ids) for ids in texts]

    order = np.random.default_rng(1).permutation(len(texts))
    for place, hidden in zip(order, run_packed(loaded, [texts[i] for i in order]), strict=True):
        assert_close(hidden, reference[place], "raw")
    for length in (1, 2, 9, len(texts)):
        assert_close(run_packed(loaded, [texts[length - 1]])[0], reference[length - 1], "raw")


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_lengths_and_repeated_texts(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    texts = random_texts([6, 6, 6, 1, 1, 30, 6], seed=2)
    texts[2] = texts[0]
    for hidden, ids in zip(run_packed(loaded, texts), texts, strict=True):
        assert_close(hidden, run_plain(plain, ids), "raw")


@pytest.mark.parametrize("family", SHORT_WINDOWS)
def test_the_fixture_shows_a_window_that_is_off_by_one(checkpoint: CheckpointFactory, family: str) -> None:
    """The text is longer than the window, and one key more or less moves the numbers far beyond the tolerance."""
    folder = checkpoint(family)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    ids = random_texts([40], seed=3)[0]
    right = run_plain(plain, ids)
    assert_close(run_packed(loaded, [ids, ids[:3]])[0], right, "raw")
    for module in loaded.module.modules():
        if getattr(module, "sliding_window", None) is not None:
            module.sliding_window += 1
    loaded.module.config.sliding_window += 1
    wrong = run_packed(loaded, [ids, ids[:3]])[0]
    assert (wrong - right).abs().max() > 0.02


@pytest.mark.parametrize("family", WITH_TOKEN_TYPES)
def test_token_types(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    assert loaded.uses_token_types
    texts = random_texts([4, 11, 11], seed=4)
    types = [[0, 0, 1, 1], [0] * 5 + [1] * 6, [0] * 11]
    packed = run_packed(loaded, texts, token_type_ids=types)
    for hidden, ids, row in zip(packed, texts, types, strict=True):
        assert_close(hidden, run_plain(plain, ids, token_type_ids=row), "raw")


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "camembert"])
@pytest.mark.parametrize("pad_token_id", [1, 5])
def test_positions_start_behind_the_padding_row(checkpoint: CheckpointFactory, family: str, pad_token_id: int) -> None:
    """BL-01: packed batches number positions from `padding_idx + 1` in every text."""
    limit = 65 + pad_token_id
    folder = checkpoint(family, pad_token_id=pad_token_id, max_position_embeddings=limit)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    assert loaded.position_offset == pad_token_id + 1
    texts = random_texts([3, 6, 64, 1], seed=5)
    for hidden, ids in zip(run_packed(loaded, texts), texts, strict=True):
        assert_close(hidden, run_plain(plain, ids), "raw")


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "deberta-v2"])
def test_rows_beyond_the_keys_change_nothing_for_the_others(checkpoint: CheckpointFactory, family: str) -> None:
    """Query expansion that is not attended to: the first rows are those of the text without it."""
    folder = checkpoint(family)
    loaded, plain = load_tiny(folder), plain_backbone(folder, family)
    texts = random_texts([8, 5], seed=6)
    expanded, other = run_packed(loaded, texts, num_keys=[5, 5])
    assert_close(expanded[:5], run_plain(plain, texts[0][:5]), "raw")
    assert_close(other, run_plain(plain, texts[1]), "raw")
    assert torch.isfinite(expanded).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_close(checkpoint: CheckpointFactory, family: str, dtype: torch.dtype) -> None:
    """Compared with transformers in the same precision: both round, so only the direction of each text is.

    Tamer weights than elsewhere: at 0.3 rounding alone turns a text by up to 0.001.
    """
    folder = checkpoint(family, initializer_range=0.1)
    loaded, plain = load_tiny(folder, dtype=dtype), plain_backbone(folder, family).to(dtype)
    texts = random_texts([12, 3, 12], seed=7)
    for hidden, ids in zip(run_packed(loaded, texts), texts, strict=True):
        assert hidden.dtype == dtype
        flat, reference = hidden.flatten().float(), run_plain(plain, ids).flatten().float()
        assert torch.cosine_similarity(flat, reference, dim=0) > 0.999

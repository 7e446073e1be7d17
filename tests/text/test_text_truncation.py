"""Truncation in ids equals the tokenizer's own, on both sides, for every limit, and is never silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_folders import CORPUS, FOLDERS, encoder_for
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from cenote.errors import InputError, OptionError, TooLongError
from cenote.text.encoder import EncodeOptions, TextEncoder
from cenote.text.locality import find_cut, find_cut_before, read_locality

SIDES = ("right", "left")
WORDS = [
    *sorted({word for line in CORPUS for word in line.split()}),
    "<mask>",
    "[SEP]",
    "fox",
    "<tag>",
    "xoxoxoxo world",
]
_texts = st.lists(st.sampled_from([*WORDS, "  ", "\n", "é", "😀", "ﬁ", "\u0301", "\xa0"]), max_size=60).map(" ".join)


@pytest.mark.parametrize("name", FOLDERS)
def test_truncation_equals_the_tokenizers(name: str, tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder(name)
    encoder = encoder_for(folder, max_length=512)
    autos = {side: AutoTokenizer.from_pretrained(folder, truncation_side=side) for side in SIDES}
    num_special = autos["right"].num_special_tokens_to_add()

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(text=_texts, limit=st.integers(max(1, num_special), 40), side=st.sampled_from(SIDES))
    def check(text: str, limit: int, side: str) -> None:
        whole = autos["right"](text)["input_ids"]
        if not whole:
            return
        ours = encoder.encode(text, EncodeOptions(max_length=limit, truncation_side=side))[0]
        theirs = autos[side](text, truncation=True, max_length=limit)
        assert ours.token_ids.tolist() == theirs["input_ids"]
        assert ours.truncated == (len(whole) > limit)
        assert len(ours) <= limit

    check()


def test_the_tokenizers_own_side_is_the_default(tmp_path: Path) -> None:
    FOLDERS["bert_class"](tmp_path)
    AutoTokenizer.from_pretrained(tmp_path, truncation_side="left").save_pretrained(tmp_path)
    auto = AutoTokenizer.from_pretrained(tmp_path)
    assert auto.truncation_side == "left"
    ours = encoder_for(tmp_path, max_length=6).encode(CORPUS[0])[0]
    assert ours.token_ids.tolist() == auto(CORPUS[0], truncation=True, max_length=6)["input_ids"]


def test_a_limit_below_the_special_tokens_is_a_clear_error(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("bert_class")
    with pytest.raises(OptionError, match="adds 2 special tokens"):
        encoder_for(folder, max_length=1)
    encoder = encoder_for(folder)
    with pytest.raises(InputError, match="adds 2 special tokens") as caught:
        encoder.encode("hello", EncodeOptions(max_length=1))
    assert caught.value.param == "max_length"
    only_special = encoder.encode("hello", EncodeOptions(max_length=2))[0]
    assert only_special.token_ids.tolist() == encoder.tokenize("")[0]
    assert only_special.truncated
    with pytest.raises(InputError):
        EncodeOptions(max_length=0)
    with pytest.raises(OptionError):
        encoder_for(tokenizer_folder("qwen_without_eos"), max_length=0)


def test_bl_31_one_long_text_does_not_change_the_others(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"), max_length=12)
    for place in (0, 7, 31):
        texts = ["hello world"] * 32
        texts[place] = CORPUS[0] * 3
        sequences = encoder.encode(texts)
        assert [sequence.truncated for sequence in sequences] == [i == place for i in range(32)]
        assert len(sequences[place]) == 12
        length = len(encoder.tokenize(texts[place])[0])
        with pytest.raises(TooLongError, match=rf"input\[{place}\] has {length} tokens and the limit is 12") as caught:
            encoder.encode(texts, EncodeOptions(truncate=False, param="input"))
        assert (caught.value.param, caught.value.index, caught.value.status) == ("input", place, 400)


def test_more_texts_than_the_tokenizer_gets_at_once(
    tokenizer_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"), max_length=12)
    texts = [" ".join(["hello", "world"][: 1 + i % 2] * (1 + i % 9)) for i in range(23)]
    whole = encoder.encode(texts)
    monkeypatch.setattr("cenote.text.content._BATCH_TEXTS", 5)
    for before, after in zip(whole, encoder.encode(texts), strict=True):
        assert np.array_equal(before.token_ids, after.token_ids)
        assert before.truncated == after.truncated


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_long_text_gives_the_ids_of_the_whole_text(
    name: str, side: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    folder = tokenizer_folder(name)
    encoder = encoder_for(folder)
    auto = AutoTokenizer.from_pretrained(folder, truncation_side=side)

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(parts=st.lists(_texts, min_size=1, max_size=6), limit=st.integers(4, 30))
    def check(parts: list[str], limit: int) -> None:
        text = "  ".join(parts) * 12
        if not text.strip():
            return
        ours = encoder.encode(text, EncodeOptions(max_length=limit, truncation_side=side, offsets=True))[0]
        theirs = auto(text, truncation=True, max_length=limit, return_offsets_mapping=True)
        assert ours.token_ids.tolist() == theirs["input_ids"]
        assert ours.offsets is not None
        rows = ours.offsets[:, 0] >= 0
        assert ours.offsets[rows].tolist() == [list(span) for span in np.array(theirs["offset_mapping"])[rows]]

    check()


def test_a_token_with_a_space_inside_is_never_cut(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("bert_with_added_tokens")
    encoder, auto = encoder_for(folder), AutoTokenizer.from_pretrained(folder)
    text = "xoxoxoxo world " * 300
    for limit in range(3, 40):
        ours = encoder.encode(text, EncodeOptions(max_length=limit))[0]
        assert ours.token_ids.tolist() == auto(text, truncation=True, max_length=limit)["input_ids"]


def test_more_is_read_where_words_are_long(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("bert_class")
    encoder = encoder_for(folder)
    text = ("x" * 150 + " ") * 400 + "hello world"
    for side in SIDES:
        auto = AutoTokenizer.from_pretrained(folder, truncation_side=side)
        ours = encoder.encode(text, EncodeOptions(max_length=40, truncation_side=side))[0]
        assert ours.token_ids.tolist() == auto(text, truncation=True, max_length=40)["input_ids"]
        assert len(ours) == 40


def test_which_tokenizers_may_be_cut(tokenizer_folder: Callable[[str], Path]) -> None:
    unknown = {"bert_with_added_tokens"}
    for name in FOLDERS:
        backend = AutoTokenizer.from_pretrained(tokenizer_folder(name)).backend_tokenizer
        locality = read_locality(backend)
        assert locality.head == locality.tail == (name not in unknown), name


def test_what_makes_a_cut_unsafe(tokenizer_folder: Callable[[str], Path]) -> None:
    def locality(*added: AddedToken, **parts: Any) -> tuple[bool, bool]:
        backend = AutoTokenizer.from_pretrained(tokenizer_folder("bert_class")).backend_tokenizer
        for name, value in parts.items():
            setattr(backend, name, value)
        backend.add_tokens(list(added))
        found = read_locality(backend)
        return found.head, found.tail

    assert locality(AddedToken("<a b>"), AddedToken(" b")) == (False, False)
    assert locality(AddedToken("b"), AddedToken("<tag>", lstrip=True)) == (True, True)
    assert locality(AddedToken("b", rstrip=True)) == (True, False)
    assert locality(normalizer=normalizers.Prepend("x")) == (True, False)
    assert locality(normalizer=normalizers.Strip(left=True, right=False)) == (True, False)
    assert locality(normalizer=normalizers.Strip(left=False, right=True)) == (True, True)
    assert locality(normalizer=normalizers.Replace("o w", "ow")) == (False, False)
    assert locality(normalizer=normalizers.Replace(Regex("."), "x")) == (False, False)
    assert locality(normalizer=normalizers.Replace(" ", "_")) == (False, False)
    assert locality(pre_tokenizer=pre_tokenizers.Split(Regex(r".+"), "isolated")) == (False, False)
    assert locality(pre_tokenizer=pre_tokenizers.Punctuation()) == (False, False)
    assert locality(pre_tokenizer=None) == (False, False)


def test_cuts_are_between_a_letter_and_a_space_before_a_letter() -> None:
    assert find_cut("ab cd ef", 0) == 2
    assert find_cut("ab cd ef", 3) == 5
    assert find_cut("ab  cd, ef. 1 2 洞 窟", 0) is None
    assert find_cut_before("ab cd ef", 8) == 5
    assert find_cut_before("ab cd ef", 4) == 2
    assert find_cut_before("ab cd ef", 1) is None
    assert find_cut_before("ab cd" + "." * 100_000, 100_005) == 2
    assert find_cut_before("." * 100_000, 100_000) is None


@pytest.mark.parametrize("name", ["bert_class", "xlm_roberta", "qwen", "gemma"])
def test_a_megabyte_costs_little_more_than_a_short_text(name: str, tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder(name), max_length=512)
    short = "the quick brown fox jumps over the lazy dog " * 100
    long = short * 250
    assert len(long) > 1_000_000
    for side in SIDES:
        options = EncodeOptions(truncation_side=side)
        encoder.encode(long, options)
        assert _seconds(encoder, long, options) < 20 * _seconds(encoder, short, options) + 0.01


def test_a_megabyte_without_words_is_read_in_bounded_time(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"))
    start = time.perf_counter()
    for text in ("😀" * 250_000, "洞窟" * 170_000, "x" * 1_000_000, " " * 1_000_000):
        assert len(encoder.encode(text)[0]) <= 64
    assert time.perf_counter() - start < 20


def test_refusing_a_megabyte_is_quick_and_names_the_limit(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"))
    with pytest.raises(TooLongError, match=r"texts has more than \d+ tokens and the limit is 64"):
        encoder.encode("hello world " * 100_000, EncodeOptions(truncate=False))


def _seconds(encoder: TextEncoder, text: str, options: EncodeOptions) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        encoder.encode(text, options)
        times.append(time.perf_counter() - start)
    return min(times)

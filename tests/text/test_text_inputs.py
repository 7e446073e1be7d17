"""What the text layer takes and what it refuses: BL-19, BL-23, BL-29 and wrong types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_folders import encoder_for
from transformers import AutoTokenizer

from cenote.errors import InputError, TooLongError
from cenote.text.encoder import EncodeOptions, TextEncoder
from cenote.text.unicode import scalar_text


@pytest.fixture
def encoder(tokenizer_folder: Callable[[str], Path]) -> TextEncoder:
    return encoder_for(tokenizer_folder("bert_class"), max_length=8)


def test_bl_19_the_four_forms_of_input(encoder: TextEncoder) -> None:
    def ids(texts: Any) -> list[list[int]]:
        return [sequence.token_ids.tolist() for sequence in encoder.encode(texts)]

    alone = encoder.tokenize("hello world")
    assert ids("hello world") == alone
    assert ids(["hello world", "fox"]) == [alone[0], encoder.tokenize("fox")[0]]
    assert ids(("hello world",)) == ids(np.array(["hello world"])) == alone
    assert ids([5, 6, 7]) == ids((5, 6, 7)) == ids(np.array([5, 6, 7], np.uint16)) == [[5, 6, 7]]
    assert ids([np.int32(5), 6]) == [[5, 6]]
    assert ids([[5, 6], [7, 8, 9]]) == ids([np.array([5, 6]), (7, 8, 9)]) == [[5, 6], [7, 8, 9]]
    assert ids(np.array([[5, 6], [7, 8]])) == [[5, 6], [7, 8]]


def test_bl_19_ids_are_taken_as_they_are(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(
        tokenizer_folder("bert_class"), max_length=4, prompts={"query": "hello "}, default_prompt_name="query"
    )
    sequence = encoder.encode([[5, 6, 7]], EncodeOptions(input_type="query"))[0]
    assert sequence.token_ids.tolist() == [5, 6, 7]
    assert sequence.token_type_ids is not None
    assert sequence.token_type_ids.tolist() == [0, 0, 0]
    assert (sequence.num_prompt_tokens, sequence.truncated, sequence.num_keys) == (0, False, 3)
    right = encoder.encode([5, 6, 7, 8, 9])[0]
    assert (right.token_ids.tolist(), right.truncated) == ([5, 6, 7, 8], True)
    left = encoder.encode([5, 6, 7, 8, 9], EncodeOptions(truncation_side="left"))[0]
    assert (left.token_ids.tolist(), left.truncated) == ([6, 7, 8, 9], True)
    with pytest.raises(TooLongError, match=r"texts\[1\] has 5 tokens and the limit is 4"):
        encoder.encode([[5], [5, 6, 7, 8, 9]], EncodeOptions(truncate=False))


@pytest.mark.parametrize(
    ("texts", "index", "message"),
    [
        ([], None, "empty"),
        ((), None, "empty"),
        (np.array([], np.int64), None, "empty"),
        ([[]], 0, "empty list of token ids"),
        ([[1], []], 1, "empty list of token ids"),
        (["a", [1]], 1, "do not mix"),
        (["a", 1], 1, "do not mix"),
        (["a", None], 1, "null"),
        (["a", b"b"], 1, "bytes"),
        ([[1], "a"], 1, "do not mix"),
        ([[1], 2], 1, "do not mix"),
        ([1, "a"], None, "a string among its token ids"),
        ([1, 2.0], None, "a float among its token ids"),
        ([1, True], None, "a boolean among its token ids"),
        ([[1, None]], 0, "null among its token ids"),
        ([[1], [2, -1]], 1, "token id -1"),
        ([2000], None, "token id 2000"),
        ([[10**30]], 0, "ids 0 to 1999"),
        (np.array([2**63], np.uint64), None, "ids 0 to 1999"),
        (None, None, "null"),
        (True, None, "a boolean"),
        (3, None, "an integer"),
        (3.5, None, "a float"),
        (b"bytes", None, "bytes"),
        ({"a": 1}, None, "a mapping"),
        ([None], 0, "null"),
        ([True], 0, "a boolean"),
        ([1.5], 0, "a float"),
        ([{}], 0, "a mapping"),
        ([[["a"]]], 0, "of type list"),
        (np.array(3), None, "of type ndarray"),
        (np.array([1.5]), 0, "of type float64"),
        (np.zeros((1, 2, 2), np.int64), 0, "of type ndarray"),
    ],
)
def test_wrong_input_is_refused_and_named(encoder: TextEncoder, texts: Any, index: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        encoder.encode(texts, EncodeOptions(param="input"))
    assert (caught.value.param, caught.value.index, caught.value.status) == ("input", index, 400)
    name = "input" if index is None else f"input[{index}]"
    assert str(caught.value).startswith(name)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"input_type": "queries"}, "input_type"),
        ({"truncation_side": "middle"}, "truncation_side"),
        ({"prompt": 3}, "prompt"),
        ({"prompt_name": 3}, "prompt_name"),
        ({"max_length": True}, "max_length"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 1.5}, "max_length"),
    ],
)
def test_wrong_options_are_refused_and_named(options: dict[str, Any], param: str) -> None:
    with pytest.raises(InputError) as caught:
        EncodeOptions(**options)
    assert caught.value.param == param


def test_bl_23_empty_and_blank_texts_are_the_special_tokens(tokenizer_folder: Callable[[str], Path]) -> None:
    for name in ("bert_class", "roberta", "t5", "qwen", "gemma"):
        folder = tokenizer_folder(name)
        encoder, auto = encoder_for(folder), AutoTokenizer.from_pretrained(folder)
        for text in ("", " ", "\n\t"):
            ids = auto(text)["input_ids"]
            assert encoder.encode(text)[0].token_ids.tolist() == ids
            assert encoder.encode(["ok", text])[1].token_ids.tolist() == ids
            assert not encoder.encode(text)[0].truncated


def test_bl_23_a_text_of_no_tokens_is_refused_alone_and_in_a_list(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("qwen_without_eos"))
    with pytest.raises(InputError, match="texts has no tokens"):
        encoder.encode("")
    with pytest.raises(InputError, match=r"texts\[1\] has no tokens") as caught:
        encoder.encode(["ok", ""])
    assert caught.value.index == 1
    assert len(encoder.encode(" ")[0]) == 1


@pytest.mark.parametrize("text", ["half \ud83d emoji", "\udfff", "two \ud83d\ude00 halves", "end \ud800"])
def test_bl_29_lone_surrogates_are_replaced(text: str, tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("roberta")
    encoder, auto = encoder_for(folder), AutoTokenizer.from_pretrained(folder)
    repaired = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    expected = auto(repaired)["input_ids"]
    for place in (0, 1, 2):
        texts = ["fine", "also fine"]
        texts.insert(place, text)
        sequences = encoder.encode(texts)
        assert sequences[place].token_ids.tolist() == expected
        assert sequences[2 if place == 0 else 0].token_ids.tolist() == auto(texts[2 if place == 0 else 0])["input_ids"]
    assert encoder.encode("x", EncodeOptions(prompt=text))[0].token_ids.tolist() == auto(repaired + "x")["input_ids"]
    assert encoder.encode_pairs(text, text)[0].token_ids.tolist() == auto([(repaired, repaired)])["input_ids"][0]
    assert encoder.tokenize(text) == [expected]


def test_bl_29_nul_is_left_to_the_tokenizer(encoder: TextEncoder) -> None:
    assert encoder.tokenize("a\x00b") == encoder.tokenize("ab")


@given(st.text(st.characters(codec=None)))
def test_repaired_text_is_valid_and_keeps_its_positions(text: str) -> None:
    repaired = scalar_text(text)
    repaired.encode()
    assert len(repaired) == len(text)
    assert all(a == b or (b == "\ufffd" and "\ud800" <= a <= "\udfff") for a, b in zip(text, repaired, strict=True))


def test_ids_become_strings_and_text_again(encoder: TextEncoder) -> None:
    ids = encoder.tokenize("hello world")[0]
    assert encoder.decode(ids) == ["hello world"]
    assert encoder.decode(np.array(ids), skip_special_tokens=False) == ["[CLS] hello world [SEP]"]
    strings = encoder.token_strings(ids)
    assert (strings[0], strings[-1]) == ("[CLS]", "[SEP]")
    assert encoder.token_strings([1999]) == ["<id 1999>"]
    assert encoder.tokenize([ids]) == [ids]
    with pytest.raises(InputError, match="token id 2000"):
        encoder.decode([2000])

"""Pairs equal the tokenizer's own, whole and truncated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_folders import CORPUS, FOLDERS, encoder_for
from tokenizers import processors
from transformers import AutoTokenizer

from cenote.errors import CheckpointError, InputError, TooLongError
from cenote.text.encoder import PairOptions
from cenote.text.frame import read_pair_frame
from cenote.text.truncate import pair_lengths

_texts = st.lists(st.sampled_from(sorted({word for line in CORPUS for word in line.split()})), max_size=15).map(
    " ".join
)


@pytest.mark.parametrize("name", FOLDERS)
def test_pairs_equal_the_tokenizers(name: str, tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder(name)
    encoder = encoder_for(folder, max_length=512)
    autos = {side: AutoTokenizer.from_pretrained(folder, truncation_side=side) for side in ("left", "right")}
    num_special = autos["right"].num_special_tokens_to_add(pair=True)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        query=_texts,
        document=_texts,
        limit=st.integers(max(1, num_special), 40),
        side=st.sampled_from(["left", "right"]),
    )
    def check(query: str, document: str, limit: int, side: str) -> None:
        whole = autos["right"]([(query, document)])["input_ids"][0]
        if not whole:
            return
        ours = encoder.encode_pairs(query, document, PairOptions(max_length=limit, truncation_side=side))[0]
        theirs = autos[side]([(query, document)], truncation=True, max_length=limit)
        assert ours.token_ids.tolist() == theirs["input_ids"][0]
        assert ours.truncated == (len(whole) > limit)
        if "token_type_ids" in theirs:
            assert ours.token_type_ids is not None
            assert ours.token_type_ids.tolist() == theirs["token_type_ids"][0]

    check()


@given(query=st.integers(0, 60), document=st.integers(0, 60), limit=st.integers(0, 60))
def test_lengths_of_a_cut_pair(query: int, document: int, limit: int) -> None:
    for strategy in ("longest_first", "only_second"):
        kept = pair_lengths(query, document, limit, strategy)
        assert sum(kept) == min(limit, query + document)
        assert kept[0] <= query
        assert kept[1] <= document
    assert pair_lengths(query, document, limit, "only_second")[0] == min(query, limit)


@pytest.mark.parametrize("name", ["bert_class", "roberta"])
def test_only_the_document_gives_way(name: str, tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder(name)
    encoder, auto = encoder_for(folder, max_length=20), AutoTokenizer.from_pretrained(folder)
    query, document = "the quick brown fox", CORPUS[1] * 2
    ours = encoder.encode_pairs(query, [document, "hello"], PairOptions(truncation="only_second"))
    for sequence, text in zip(ours, [document, "hello"], strict=True):
        theirs = auto(query, text, truncation="only_second", max_length=20)["input_ids"]
        assert sequence.token_ids.tolist() == theirs
    assert [sequence.truncated for sequence in ours] == [True, False]
    with pytest.raises(TooLongError, match="leaves nothing of the limit of 20 for a document") as caught:
        encoder.encode_pairs(CORPUS[1] * 2, ["hello"], PairOptions(truncation="only_second"))
    assert caught.value.param == "query"


def test_each_text_can_be_cut_on_its_own(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"))
    query, document = (encoder.tokenize(text, add_special_tokens=False)[0] for text in (CORPUS[0], CORPUS[1]))
    cls, sep = encoder.tokenize("")[0]
    options = PairOptions(max_query_tokens=3, max_document_tokens=5)
    cut = encoder.encode_pairs(CORPUS[0], CORPUS[1], options)[0]
    assert cut.token_ids.tolist() == [cls, *query[:3], sep, *document[:5], sep]
    assert cut.truncated
    short = encoder.encode_pairs("hello", "world", options)[0]
    assert not short.truncated


def test_many_documents_share_one_query(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("bert_class")
    encoder, auto = encoder_for(folder), AutoTokenizer.from_pretrained(folder)
    documents = ["hello", "", "world " * 5]
    expected = auto([("who", document) for document in documents])["input_ids"]
    assert [sequence.token_ids.tolist() for sequence in encoder.encode_pairs("who", documents)] == expected
    both = encoder.encode_pairs(["who", "what"], ["hello", "world"])
    assert [sequence.token_ids.tolist() for sequence in both] == auto([("who", "hello"), ("what", "world")])[
        "input_ids"
    ]
    prompted = encoder.encode_pairs("who", "hello", PairOptions(prompt="what is "))[0]
    assert prompted.token_ids.tolist() == auto([("what is who", "hello")])["input_ids"][0]


def test_wrong_pairs_are_refused_and_named(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("bert_class"), max_length=12)
    with pytest.raises(InputError, match="1:1, 1:N or N:N"):
        encoder.encode_pairs(["a", "b"], ["a", "b", "c"])
    with pytest.raises(InputError, match="documents is empty"):
        encoder.encode_pairs("a", [])
    with pytest.raises(InputError, match=r"texts\[1\] is null"):
        encoder.encode_pairs("a", ["b", None], PairOptions(document_param="texts"))  # type: ignore[list-item]
    with pytest.raises(
        TooLongError, match=r"documents\[1\] and its query have \d+ tokens together and the limit is 12"
    ):
        encoder.encode_pairs("fox", ["b", CORPUS[0]], PairOptions(truncate=False))
    with pytest.raises(InputError, match="a pair has 3 special tokens"):
        encoder.encode_pairs("a", "b", PairOptions(max_length=2))
    bare = encoder_for(tokenizer_folder("qwen_without_eos"))
    with pytest.raises(InputError, match=r"documents\[0\] and its query have no tokens"):
        bare.encode_pairs("", [""])


def test_a_tokenizer_that_turns_pairs_round_is_refused(tokenizer_folder: Callable[[str], Path]) -> None:
    backend = AutoTokenizer.from_pretrained(tokenizer_folder("bert_class")).backend_tokenizer
    cls = backend.token_to_id("[CLS]")
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $B $A", special_tokens=[("[CLS]", cls)]
    )
    with pytest.raises(CheckpointError, match="post-processor"):
        read_pair_frame(backend)

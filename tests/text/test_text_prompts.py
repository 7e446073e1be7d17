"""Prompts and lower-casing as sentence-transformers does them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from text_folders import encoder_for, write_json

from cenote.errors import InputError
from cenote.text.encoder import EncodeOptions, TextEncoder
from tiny import add_sentence_transformers_files, tiny_checkpoint

TEXTS = ["the cat is in the house", "Dog", "", "hot and cold water in a dark cave"]
PROMPTS = {"query": "what is ", "document": "the river: ", "retrieval": "big stone ", "empty": ""}


def _model(folder: Path, family: str = "bert", **settings: Any) -> SentenceTransformer:
    tiny_checkpoint(family, folder)
    add_sentence_transformers_files(folder, **settings)
    return SentenceTransformer(str(folder), device="cpu")


def _reference(model: SentenceTransformer, text: str, prompt: str | None) -> tuple[list[int], int]:
    features = model.preprocess([text], prompt=prompt)
    return features["input_ids"][0].tolist(), features.get("prompt_length", 0)


def _ours(encoder: TextEncoder, text: str, **options: Any) -> tuple[list[int], int]:
    sequence = encoder.encode(text, EncodeOptions(**options))[0]
    return sequence.token_ids.tolist(), sequence.num_prompt_tokens


@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "qwen3"])
def test_prompts_and_their_lengths_are_those_of_sentence_transformers(family: str, tmp_path: Path) -> None:
    model = _model(tmp_path, family, prompts=PROMPTS, default_prompt_name="retrieval")
    encoder = encoder_for(tmp_path, prompts=PROMPTS, default_prompt_name="retrieval")
    for text in TEXTS:
        assert _ours(encoder, text) == _reference(model, text, PROMPTS["retrieval"])
        assert _ours(encoder, text, input_type="query") == _reference(model, text, PROMPTS["query"])
        assert _ours(encoder, text, input_type="document") == _reference(model, text, PROMPTS["document"])
        assert _ours(encoder, text, prompt_name="retrieval") == _reference(model, text, PROMPTS["retrieval"])
        assert _ours(encoder, text, prompt_name="empty", input_type="query") == _reference(model, text, None)
        assert _ours(encoder, text, prompt="old ", prompt_name="retrieval") == _reference(model, text, "old ")
        assert _ours(encoder, text, prompt="") == _reference(model, text, None)
        assert _ours(encoder, text, raw=True) == _reference(model, text, None)


def test_a_long_prompt_fills_the_sequence_as_in_sentence_transformers(tmp_path: Path) -> None:
    prompt = "the cat is in the house and " * 4
    model = _model(tmp_path, max_seq_length=12)
    encoder = encoder_for(tmp_path, max_length=12)
    assert _ours(encoder, "dog", prompt=prompt) == _reference(model, "dog", prompt)
    cut = encoder.encode("the dog", EncodeOptions(prompt="big old cat ", max_length=5, truncation_side="left"))[0]
    whole = encoder.encode("the dog", EncodeOptions(prompt="big old cat "))[0]
    assert (whole.num_prompt_tokens, len(whole)) == (4, 7)
    assert (cut.num_prompt_tokens, len(cut)) == (2, 5)


def test_input_type_never_falls_back_to_the_default_prompt(tmp_path: Path) -> None:
    model = _model(tmp_path, prompts={"query": "what is "}, default_prompt_name="query")
    encoder = encoder_for(tmp_path, prompts={"query": "what is "}, default_prompt_name="query")
    assert _ours(encoder, "dog", input_type="document") == _reference(model, "dog", None)
    assert _ours(encoder, "dog") == _reference(model, "dog", "what is ")


def test_a_document_prompt_may_be_called_passage_or_corpus(tmp_path: Path) -> None:
    model = _model(tmp_path)
    for name in ("passage", "corpus"):
        encoder = encoder_for(tmp_path, prompts={"query": "what is ", name: "the river: "})
        assert _ours(encoder, "dog", input_type="document") == _reference(model, "dog", "the river: ")
    explicit = encoder_for(tmp_path, prompts={"document": "", "passage": "the river: "})
    assert _ours(explicit, "dog", input_type="document") == _reference(model, "dog", None)


def test_an_unknown_prompt_name_lists_the_known_ones(tmp_path: Path) -> None:
    tiny_checkpoint("bert", tmp_path)
    with pytest.raises(InputError, match=r"'nope'.*empty, query") as caught:
        _ours(encoder_for(tmp_path, prompts={"query": "q", "empty": ""}), "dog", prompt_name="nope")
    assert caught.value.param == "prompt_name"


@pytest.mark.parametrize(("flag", "tokenizer_lower_cases"), [(False, True), (True, False), (True, True)])
def test_bl_17_lower_casing_equals_sentence_transformers(
    flag: bool, tokenizer_lower_cases: bool, tmp_path: Path
) -> None:
    tiny_checkpoint("bert", tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = tokenizer_lower_cases
    write_json(tmp_path / "tokenizer.json", tokenizer)
    add_sentence_transformers_files(tmp_path, do_lower_case=flag)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    encoder = encoder_for(tmp_path, do_lower_case=flag)
    for text in ("The CAT and the Dog", "the cat and the dog", "[UNK] CAT [SEP] [unk]", "ÉCOLE İstanbul ΣΑΣ"):
        assert _ours(encoder, text)[0] == _reference(model, text, None)[0]
    upper = encoder.encode("the CAT", EncodeOptions(offsets=True))[0]
    assert upper.token_ids.tolist() == encoder.tokenize("the cat")[0]
    assert encoder.token_strings(upper.token_ids) == ["[CLS]", "the", "cat", "[SEP]"]
    assert upper.offsets is not None
    assert upper.offsets.tolist() == [[-1, -1], [0, 3], [4, 7], [-1, -1]]


def test_offsets_point_into_the_callers_own_string(tmp_path: Path) -> None:
    tiny_checkpoint("bert", tmp_path)
    encoder = encoder_for(tmp_path, do_lower_case=True)
    text = "İ the CAT \ud800 dog"
    for prompt in ("", "what is ", "É "):
        sequence = encoder.encode(text, EncodeOptions(offsets=True, prompt=prompt))[0]
        assert sequence.offsets is not None
        strings = encoder.token_strings(sequence.token_ids)
        spans = {string: text[start:end] for string, (start, end) in zip(strings, sequence.offsets, strict=True)}
        assert (spans["the"], spans["cat"], spans["dog"]) == ("the", "CAT", "dog")
        assert (sequence.offsets[: max(1, sequence.num_prompt_tokens)] == -1).all()
        assert (sequence.offsets[max(1, sequence.num_prompt_tokens) : -1] >= 0).all()

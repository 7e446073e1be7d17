"""The ids, token types and offsets are those of `AutoTokenizer`."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from text_folders import FOLDERS, SAMPLES, bert_class, bert_contradicting, encoder_for, write_json
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import (
    MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS,
    TOKENIZER_MAPPING_NAMES,
)

from cenote.errors import CheckpointError
from cenote.text.classes import GENERIC, REGISTERED_CLASSES, WRONGLY_DECLARED
from cenote.text.encoder import EncodeOptions
from tiny import FAMILIES
from tiny_tokenizers import save_tiny_tokenizer


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_types_and_offsets_are_those_of_auto_tokenizer(name: str, tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder(name)
    auto = AutoTokenizer.from_pretrained(folder)
    encoder = encoder_for(folder, max_length=2048)
    samples = [text for text in SAMPLES if auto(text)["input_ids"]]
    assert len(samples) >= len(SAMPLES) - 3
    for text, ours in zip(samples, encoder.encode(samples, EncodeOptions(offsets=True)), strict=True):
        theirs = auto(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        assert ours.token_ids.tolist() == theirs["input_ids"]
        if "token_type_ids" in auto.model_input_names:
            assert ours.token_type_ids is not None
            assert ours.token_type_ids.tolist() == theirs["token_type_ids"]
        else:
            assert ours.token_type_ids is None
        special = np.array(theirs["special_tokens_mask"], bool)
        assert ours.offsets is not None
        assert ours.offsets[~special].tolist() == [list(span) for span in np.array(theirs["offset_mapping"])[~special]]
        assert (ours.offsets[special] == -1).all()
        assert not ours.truncated
        assert ours.num_keys == len(ours)
    assert encoder.tokenize(samples) == [auto(text)["input_ids"] for text in samples]
    assert encoder.tokenize(samples, add_special_tokens=False) == [
        auto(text, add_special_tokens=False)["input_ids"] for text in samples
    ]


@pytest.mark.parametrize("family", ["bert", "roberta", "t5", "qwen3"])
def test_the_tiny_checkpoints_ids_are_those_of_auto_tokenizer(family: str, tmp_path: Path) -> None:
    save_tiny_tokenizer(tmp_path, FAMILIES[family].style, max_length=64)
    write_json(tmp_path / "config.json", {"model_type": FAMILIES[family].model_type})
    auto = AutoTokenizer.from_pretrained(tmp_path)
    for text, ours in zip(SAMPLES, encoder_for(tmp_path, max_length=2048).encode(SAMPLES), strict=True):
        assert ours.token_ids.tolist() == auto(text)["input_ids"]


def test_the_class_table_is_that_of_transformers() -> None:
    for model_type, name in REGISTERED_CLASSES.items():
        expected = TOKENIZER_MAPPING_NAMES[model_type]
        assert name == (GENERIC if expected == "MistralCommonBackend" else expected), model_type
        assert (model_type in WRONGLY_DECLARED) == (model_type in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS), model_type
    served = {family.model_type for family in FAMILIES.values()}
    assert {model_type for model_type in served if model_type in TOKENIZER_MAPPING_NAMES} <= set(REGISTERED_CLASSES)


_DECLARED = ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "OddTokenizer"]
_MODEL_TYPES = ["bert", "modernbert", "eurobert", "llama", "unheard-of"]


@pytest.mark.parametrize(
    ("model_type", "declared"),
    [*itertools.product([*_MODEL_TYPES, "xlm-roberta"], _DECLARED), *((kind, None) for kind in _MODEL_TYPES)],
)
def test_the_class_is_the_one_that_auto_tokenizer_takes(model_type: str, declared: str | None, tmp_path: Path) -> None:
    bert_contradicting(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    write_json(tmp_path / "tokenizer_config.json", {**config, "tokenizer_class": declared})
    write_json(tmp_path / "config.json", {"model_type": model_type})
    auto = AutoTokenizer.from_pretrained(tmp_path)
    text = "hello world HELLO World"
    assert encoder_for(tmp_path).encode(text)[0].token_ids.tolist() == auto(text)["input_ids"]


def test_converting_old_files_is_logged(
    tokenizer_folder: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="cenote"):
        encoder_for(tokenizer_folder("bert_class"))
        assert not caplog.records
        encoder_for(tokenizer_folder("bert_vocab_only"))
    assert "no tokenizer.json" in caplog.text


def test_folders_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokenizer folder"):
        encoder_for(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        encoder_for(tmp_path)
    bert_class(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"truncated": ')
    with pytest.raises(CheckpointError, match=r"needs a readable tokenizer\.json"):
        encoder_for(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        encoder_for(tmp_path)


def test_a_sentencepiece_folder_without_the_package_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"\x0a\x0bnot a model")
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer"})
    write_json(tmp_path / "config.json", {"model_type": "xlm-roberta"})
    with pytest.raises(CheckpointError, match="sentencepiece"):
        encoder_for(tmp_path)


def test_a_tokenizer_of_python_code_is_refused(tmp_path: Path) -> None:
    bert_class(tmp_path)
    own = {"tokenizer_class": "OddTokenizer", "auto_map": {"AutoTokenizer": ["odd.OddTokenizer", None]}}
    write_json(tmp_path / "tokenizer_config.json", own)
    write_json(tmp_path / "config.json", {"model_type": "odd"})
    with pytest.raises(CheckpointError, match="auto_map"):
        encoder_for(tmp_path)


def test_bl_07_the_appended_token_is_there_exactly_once(tokenizer_folder: Callable[[str], Path]) -> None:
    folder = tokenizer_folder("qwen")
    auto = AutoTokenizer.from_pretrained(folder)
    end = auto.convert_tokens_to_ids("<|endoftext|>")
    assert end != auto.eos_token_id
    encoder = encoder_for(folder, max_length=8)
    for text in ("test", "", "the quick brown fox jumps over the lazy dog, doesn't it?"):
        ids = encoder.encode(text)[0].token_ids.tolist()
        assert ids == auto(text, truncation=True, max_length=8)["input_ids"]
        assert ids.count(end) == 1
        assert ids[-1] == end
    literal = encoder.encode("test<|endoftext|>")[0].token_ids.tolist()
    assert literal == auto("test<|endoftext|>")["input_ids"]
    assert literal[-2:] == [end, end]

"""ColBERT's encodings equal sentence-transformers' `Transformer.preprocess` with a query expansion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.base.modules import Transformer
from text_folders import encoder_for
from tokenizers import AddedToken

from cenote.checkpoint.spec import ExpansionSpec
from cenote.errors import TooLongError
from cenote.text.encoder import EncodeOptions
from cenote.text.tokenized import TokenizedText
from tiny import tiny_checkpoint

MASK = 4
MARKERS = {"query_marker_id": 5, "document_marker_id": 6}
TEXTS = ["dog", "the cat is in the house and the dog is on the road", "", "the water, the river."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint("bert", tmp_path_factory.mktemp("colbert"))


@pytest.fixture(scope="module")
def module(folder: Path) -> Transformer:
    """Markers as text, registered the way `MultiVectorEncoder` registers those of PyLate and Stanford checkpoints."""
    module = Transformer(str(folder))
    tokens = [AddedToken(token, normalized=False, special=True) for token in ("[unused0]", "[unused1]")]
    module.tokenizer.add_special_tokens({"additional_special_tokens": tokens})
    return module


def _reference(module: Transformer, text: str, task: str, **settings: Any) -> dict[str, list[int]]:
    settings = {"query_length": None, "document_length": None, "query_expansion": None} | settings
    for name in ("query_length", "document_length", "query_expansion"):
        setattr(module, name, settings[name])
    features = module.preprocess([text], prompt={"query": "[unused0] ", "document": "[unused1] "}[task], task=task)
    return {key: features[key][0].tolist() for key in ("input_ids", "attention_mask", "token_type_ids")}


def _check(ours: TokenizedText, theirs: dict[str, list[int]]) -> None:
    assert ours.token_ids.tolist() == theirs["input_ids"]
    assert ours.token_type_ids is not None
    assert ours.token_type_ids.tolist() == theirs["token_type_ids"]
    assert theirs["attention_mask"] == [1] * ours.num_keys + [0] * (len(ours) - ours.num_keys)


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_queries_are_marked_and_filled_to_a_fixed_length(
    text: str, attend: bool, folder: Path, module: Transformer
) -> None:
    expansion = ExpansionSpec(
        **MARKERS,
        query_length=10,
        fill_length=10,
        expand_queries=True,
        mask_token_id=MASK,
        attend_to_expansion=attend,
    )
    ours = encoder_for(folder, expansion=expansion).encode(text, EncodeOptions(input_type="query"))[0]
    settings = {"query_expansion": {"strategy": "fixed", "length": 10, "attend": attend}}
    _check(ours, _reference(module, text, "query", **settings))
    assert len(ours) == 10
    assert ours.truncated == (len(text) > 40)
    assert ours.input_type == "query"


@pytest.mark.parametrize("ceiling", [None, 14])
@pytest.mark.parametrize("text", TEXTS)
def test_queries_filled_to_a_least_length_keep_what_is_longer(
    text: str, ceiling: int | None, folder: Path, module: Transformer
) -> None:
    expansion = ExpansionSpec(**MARKERS, query_length=ceiling, fill_length=8, expand_queries=True, mask_token_id=MASK)
    ours = encoder_for(folder, expansion=expansion).encode(text, EncodeOptions(input_type="query"))[0]
    settings = {"query_expansion": {"strategy": "min", "length": 8}, "query_length": ceiling}
    _check(ours, _reference(module, text, "query", **settings))


@pytest.mark.parametrize("text", TEXTS)
def test_documents_are_marked_and_cut(text: str, folder: Path, module: Transformer) -> None:
    expansion = ExpansionSpec(**MARKERS, document_length=9, query_length=6)
    encoder = encoder_for(folder, expansion=expansion)
    ours = encoder.encode(text, EncodeOptions(input_type="document"))[0]
    _check(ours, _reference(module, text, "document", document_length=9))
    query = encoder.encode(text, EncodeOptions(input_type="query"))[0]
    _check(query, _reference(module, text, "query", query_length=6))


def test_a_marker_is_put_before_the_prompt_and_survives_left_truncation(folder: Path) -> None:
    encoder = encoder_for(folder, expansion=ExpansionSpec(**MARKERS), prompts={"document": "big old "})
    whole = encoder.encode("the cat and the dog", EncodeOptions(input_type="document"))[0]
    assert encoder.token_strings(whole.token_ids)[:5] == ["[CLS]", "[unused1]", "big", "old", "the"]
    assert whole.num_prompt_tokens == 4
    options = EncodeOptions(input_type="document", max_length=5, truncation_side="left")
    cut = encoder.encode("the cat and the dog", options)[0]
    assert encoder.token_strings(cut.token_ids) == ["[CLS]", "[unused1]", "the", "dog", "[SEP]"]


def test_without_an_input_type_or_raw_a_text_is_plain(folder: Path) -> None:
    expansion = ExpansionSpec(
        **MARKERS, query_length=10, fill_length=10, expand_queries=True, mask_token_id=MASK, document_length=4
    )
    encoder = encoder_for(folder, expansion=expansion)
    plain = encoder.tokenize("the cat and the dog")[0]
    for options in (EncodeOptions(), EncodeOptions(input_type="query", raw=True)):
        assert encoder.encode("the cat and the dog", options)[0].token_ids.tolist() == plain
    with pytest.raises(TooLongError, match="has 8 tokens and the limit is 4"):
        encoder.encode("the cat and the dog", EncodeOptions(input_type="document", truncate=False))


def test_offsets_cover_the_expansion(folder: Path) -> None:
    expansion = ExpansionSpec(**MARKERS, query_length=6, fill_length=6, expand_queries=True, mask_token_id=MASK)
    options = EncodeOptions(input_type="query", offsets=True)
    ours = encoder_for(folder, expansion=expansion).encode("the cat", options)[0]
    assert ours.offsets is not None
    assert np.array_equal(ours.offsets, [[-1, -1], [-1, -1], [0, 3], [4, 7], [-1, -1], [-1, -1]])

"""Texts over the limit: cut, refused, or read in blocks. Reference: the formula on transformers, one block at a time.

A block is a whole sequence: special tokens and prompt around at most as many tokens as fit. The text's vector is the
mean of the blocks' vectors by their numbers of tokens, normalised again where the model normalises.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from cenote import Engine, InputError, TooLongError
from cenote.text.blocks import block_slices
from tiny import add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

LIMIT = 64
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"]
PROMPTS = {"query": "the dog: "}
Vectors = npt.NDArray[np.float32]


def text_of(num_words: int) -> str:
    return " ".join(WORDS[(i * i + 3 * i) % len(WORDS)] for i in range(num_words))


SHORT, LONG, LONGER = text_of(12), text_of(170), text_of(401)


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_checkpoint(request.param, tmp_path_factory.mktemp(request.param))
    return add_sentence_transformers_files(made, normalize=True, prompts=PROMPTS)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, any_dimensions=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


class Reference:
    """Blocks as plain lists, one forward for each."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.sentences = SentenceTransformer(str(folder), device="cpu")

    def prompt(self, prompt: str) -> list[int]:
        """The prompt's ids before a text; alone, XLM-R's has one more for the space at its end."""
        ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        before = self.tokenizer(prompt + "the", add_special_tokens=False)["input_ids"]
        assert len(before) - len(ids) in (0, 1)
        return before[:-1] if prompt else []

    def blocks(self, text: str, prompt: str = "", overlap: int = 0) -> list[list[int]]:
        first = self.prompt(prompt)
        content = self.tokenizer(prompt + text, add_special_tokens=False)["input_ids"][len(first) :]
        room = LIMIT - self.tokenizer.num_special_tokens_to_add() - len(first)
        starts = takewhile(lambda start: start == 0 or start + overlap < len(content), count(0, room - overlap))
        return [content[start : start + room] for start in starts]

    def framed(self, ids: list[int]) -> list[int]:
        first, last = self.tokenizer("")["input_ids"]
        return [first, *ids, last]

    def vector(self, ids: Sequence[int]) -> Vectors:
        with torch.inference_mode():
            hidden = self.model(torch.tensor([list(ids)])).last_hidden_state[0].double()
        return hidden.mean(dim=0).numpy()

    def mean(self, text: str, prompt: str = "", overlap: int = 0, dimensions: int = 64) -> Vectors:
        first = self.prompt(prompt)
        blocks = self.blocks(text, prompt, overlap)
        framed = [self.framed(first + block) for block in blocks]
        vectors = [unit(self.vector(ids)[:dimensions]) for ids in framed]
        weights = [len(block) for block in blocks]
        return unit(sum(weight * vector for weight, vector in zip(weights, vectors, strict=True)) / sum(weights))


def unit(vector: Vectors) -> Vectors:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("overlap", [0, 1, 17, 30])
def test_mean_of_the_blocks_by_their_tokens(engine: Engine, reference: Reference, overlap: int) -> None:
    found = engine.embed([LONG, SHORT, LONGER], long_texts="chunk", chunk_overlap=overlap)
    assert len(reference.blocks(LONG, overlap=overlap)) > 2
    expected = [reference.mean(text, overlap=overlap) for text in (LONG, SHORT, LONGER)]
    assert_close(found, np.stack(expected))


def test_the_weights_count(engine: Engine, reference: Reference) -> None:
    """The test above would not see equal weights if the last block were as long as the others."""
    blocks = reference.blocks(LONG)
    assert len(blocks[-1]) < len(blocks[0]) - 4
    plain = unit(sum(unit(reference.vector(reference.framed(b))) for b in blocks))
    assert float(np.abs(engine.embed(LONG, long_texts="chunk")[0] - plain).max()) > 1e-3


@pytest.mark.parametrize("options", [{"input_type": "query"}, {"prompt_name": "query"}, {"prompt": PROMPTS["query"]}])
def test_every_block_has_the_prompt(engine: Engine, reference: Reference, options: dict[str, str]) -> None:
    found = engine.embed([LONG, LONGER], long_texts="chunk", chunk_overlap=5, **options)
    expected = [reference.mean(text, PROMPTS["query"], overlap=5) for text in (LONG, LONGER)]
    assert_close(found, np.stack(expected))


def test_dimensions_are_cut_in_every_block(engine: Engine, reference: Reference) -> None:
    found = engine.embed(LONG, long_texts="chunk", dimensions=16)
    assert_close(found[0], reference.mean(LONG, dimensions=16))


def test_raw_vectors_are_not_normalised_again(engine: Engine, reference: Reference) -> None:
    found = engine.embed(LONG, long_texts="chunk", normalize=False)[0]
    blocks = reference.blocks(LONG)
    vectors = [reference.vector(reference.framed(block)) for block in blocks]
    expected = np.average(vectors, axis=0, weights=[len(block) for block in blocks])
    assert_close(found, expected, "raw")
    assert abs(np.linalg.norm(found) - 1) > 0.05


def test_a_text_that_fits_has_the_ordinary_vector(engine: Engine, reference: Reference) -> None:
    words = next(n for n in count(1) if len(reference.tokenizer(text_of(n))["input_ids"]) >= LIMIT)
    at_the_limit = text_of(words - (len(reference.tokenizer(text_of(words))["input_ids"]) > LIMIT))
    texts = ["", "fox", SHORT, at_the_limit]
    assert np.array_equal(engine.embed(texts, long_texts="chunk"), engine.embed(texts))


def test_tokens_of_all_blocks_count_and_nothing_is_marked_as_cut(engine: Engine, reference: Reference) -> None:
    found = engine.embed([LONG, SHORT], long_texts="chunk", chunk_overlap=9)
    num_special = reference.tokenizer.num_special_tokens_to_add()
    expected = [sum(len(b) + num_special for b in reference.blocks(text, overlap=9)) for text in (LONG, SHORT)]
    assert found.num_tokens == expected
    assert found.truncated == [False, False]


def test_token_ids_are_cut_as_they_are(engine: Engine, reference: Reference) -> None:
    ids = reference.tokenizer(LONG, add_special_tokens=False)["input_ids"]
    found = engine.embed([ids, ids[:9]], long_texts="chunk")
    blocks = [ids[start : start + LIMIT] for start in range(0, len(ids), LIMIT)]
    expected = sum(len(block) * unit(reference.vector(block)) for block in blocks)
    assert_close(found, np.stack([unit(expected), unit(reference.vector(ids[:9]))]))
    assert found.num_tokens == [len(ids), 9]


def test_cut_is_the_default_and_error_refuses(engine: Engine, reference: Reference) -> None:
    expected = reference.sentences.encode([LONG, SHORT])
    for options in ({}, {"truncate": True}, {"long_texts": "truncate"}):
        cut = engine.embed([LONG, SHORT], **options)
        assert_close(cut, expected)
        assert cut.truncated == [True, False]
    for options in ({"truncate": False}, {"long_texts": "error"}, {"long_texts": "error", "truncate": False}):
        with pytest.raises(TooLongError, match=r"texts\[1\] has \d+ tokens and the limit is 64"):
            engine.embed([SHORT, LONG], **options)


def test_encode_reads_blocks_for_dense_vectors_alone(engine: Engine, reference: Reference) -> None:
    encoded = engine.encode([LONG], outputs=("dense",), long_texts="chunk")
    assert_close(encoded.dense, np.stack([reference.mean(LONG)]))
    assert encoded.truncated == [False]
    with pytest.raises(InputError, match="dense") as caught:
        engine.encode([LONG], outputs=("dense", "sparse"), long_texts="chunk")
    assert caught.value.param == "long_texts"
    with pytest.raises(TooLongError):
        engine.encode([LONG], outputs=("dense",), long_texts="error")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"long_texts": "nope"}, "long_texts"),
        ({"long_texts": "truncate", "truncate": False}, "long_texts"),
        ({"chunk_overlap": 3}, "chunk_overlap"),
        ({"long_texts": "error", "chunk_overlap": 3}, "chunk_overlap"),
        ({"long_texts": "chunk", "chunk_overlap": -1}, "chunk_overlap"),
        ({"long_texts": "chunk", "chunk_overlap": 32}, "chunk_overlap"),
        ({"long_texts": "chunk", "chunk_overlap": 1.5}, "chunk_overlap"),
        ({"long_texts": "chunk", "chunk_overlap": True}, "chunk_overlap"),
        ({"long_texts": "chunk", "prompt": text_of(40)}, "prompt"),
    ],
)
def test_what_is_wrong_is_named(engine: Engine, options: dict[str, object], param: str) -> None:
    with pytest.raises(InputError) as caught:
        engine.embed([SHORT], **options)
    assert caught.value.param == param


@given(length=st.integers(0, 200), room=st.integers(1, 30), data=st.data())
def test_blocks_cover_the_text_in_order(length: int, room: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, room // 2))
    blocks = [range(length)[part] for part in block_slices(length, room, overlap)]
    assert [row for i, block in enumerate(blocks) for row in block[overlap * (i > 0) :]] == list(range(length))
    assert all(len(block) == room for block in blocks[:-1])
    assert len(blocks[-1]) > overlap or length <= overlap
    assert sum(map(len, blocks)) <= 2 * length + room


def test_a_megabyte_takes_little_memory(tmp_path: Path) -> None:
    """What is kept is ids and one vector for each block; the tokenizer's own memory is outside Python."""
    folder = add_sentence_transformers_files(tiny_checkpoint("bert", tmp_path / "bert", num_hidden_layers=1))
    text = "the quick brown fox " * 5_000
    with Engine(folder) as engine:
        tracemalloc.start()
        found = engine.embed([text], long_texts="chunk", chunk_overlap=8)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found.num_tokens[0] > 20_000
    assert peak < 40 * len(text)

"""Late chunking: one context, one vector for each piece. Reference: the mean of the piece's rows on transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from cenote import AsyncEngine, Engine, InputError, PoolingParams, TooLongError
from tiny import CheckpointFactory, TinyDense, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

LIMIT = 64
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"]
FAMILIES = ["bert", "xlm-roberta", "modernbert", "jina_embeddings_v3", "mpnet", "gemma3_text"]
Vectors = npt.NDArray[np.float32]


def text_of(num_words: int) -> str:
    return " ".join(WORDS[(i * i + 3 * i) % len(WORDS)] for i in range(num_words))


TEXT = "the quick fox jumps. a lazy dog runs home, and the brown fox"
SENTENCES = [(0, 20), (21, 42), (43, 60)]


class Reference:
    """One forward over framed ids, the mean of some of its rows, L2."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        special = self.tokenizer("")["input_ids"]
        self.num_leading = 0 if len(special) < 2 else 1
        self.first, self.last = special[: self.num_leading], special[self.num_leading :]

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def ends(self, text: str) -> list[int]:
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return [end for _, end in offsets]

    def rows(self, ids: Sequence[int], num_prompt: int = 0) -> npt.NDArray[np.float64]:
        """Return the rows of the text's own tokens."""
        with torch.inference_mode():
            hidden = self.model(torch.tensor([[*self.first, *ids, *self.last]])).last_hidden_state[0].double().numpy()
        start = self.num_leading + num_prompt
        return hidden[start : self.num_leading + len(ids)]

    def spans(self, text: str, spans: Sequence[tuple[int, int]], prompt: str = "") -> Vectors:
        """Every token belongs to the span in which it ends."""
        ends = [end - len(prompt) for end in self.ends(prompt + text)]
        num_prompt = sum(end <= 0 for end in ends)
        rows, ends = self.rows(self.ids(prompt + text), num_prompt), ends[num_prompt:]
        chosen = [[row for row, end in zip(rows, ends, strict=True) if a < end <= b] for a, b in spans]
        return np.stack([unit(np.mean(each, axis=0)) for each in chosen])


def unit(vector: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_checkpoint(request.param, tmp_path_factory.mktemp(request.param))
    return add_sentence_transformers_files(made, normalize=True, prompts={"query": "the dog: "})


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, any_dimensions=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def test_spans_of_one_text(engine: Engine, reference: Reference) -> None:
    (found,) = engine.embed_chunks(TEXT, chunks=SENTENCES)
    assert_close(found.vectors, reference.spans(TEXT, SENTENCES))
    assert found.spans == SENTENCES
    assert found.contexts == [0, 0, 0]


def test_pieces_know_their_context(engine: Engine) -> None:
    (found,) = engine.embed_chunks(TEXT, chunks=SENTENCES)
    alone = engine.embed([TEXT[start:end] for start, end in SENTENCES])
    assert float(np.abs(found.vectors - alone).max(axis=1).min()) > 1e-2


def test_spans_may_overlap_and_leave_gaps(engine: Engine, reference: Reference) -> None:
    spans = [(0, 9), (4, 20), (4, 15), (43, 60)]
    (found,) = engine.embed_chunks([TEXT], chunks=[spans])
    assert_close(found.vectors, reference.spans(TEXT, spans))


def test_a_token_across_a_boundary_belongs_to_the_later_piece(engine: Engine, reference: Reference) -> None:
    """Where a word starts with a space of its own, and where a boundary is inside of it."""
    spans = [(0, 4), (4, 20)]
    touching = engine.embed_chunks("the quick fox jumps.", chunks=spans)[0]
    assert_close(touching.vectors, reference.spans("the quick fox jumps.", spans))


def test_several_texts_in_their_order(engine: Engine, reference: Reference) -> None:
    texts = [TEXT, "home", text_of(5)]
    chunks = [SENTENCES, [(0, 4)], [(0, 9), (9, len(text_of(5)))]]
    found = engine.embed_chunks(texts, chunks=chunks)
    for text, spans, each in zip(texts, chunks, found, strict=True):
        assert_close(each.vectors, reference.spans(text, spans))
    num_special = len(reference.first) + len(reference.last)
    assert found.usage.num_tokens == [len(reference.ids(text)) + num_special for text in texts]


@pytest.mark.parametrize("size", [1, 4, 7, 40])
def test_a_fixed_number_of_tokens(engine: Engine, reference: Reference, size: int) -> None:
    (found,) = engine.embed_chunks(TEXT, chunk_size=size)
    rows, ends = reference.rows(reference.ids(TEXT)), reference.ends(TEXT)
    starts = range(0, len(rows), size)
    assert_close(found.vectors, np.stack([unit(rows[start : start + size].mean(axis=0)) for start in starts]))
    assert [end for _, end in found.spans] == [ends[min(start + size, len(ends)) - 1] for start in starts]
    assert "".join(TEXT[start:end] for start, end in found.spans).replace(" ", "") == TEXT.replace(" ", "")


def test_pieces_as_a_list_are_tokenised_one_by_one(engine: Engine, reference: Reference) -> None:
    pieces = ["the quick fox jumps.", "a lazy dog", "home"]
    (found,) = engine.embed_chunks([pieces])
    ids = [reference.ids(piece) for piece in pieces]
    rows = reference.rows([token for each in ids for token in each])
    bounds = np.cumsum([0, *map(len, ids)])
    expected = [unit(rows[a:b].mean(axis=0)) for a, b in pairwise(bounds)]
    assert_close(found.vectors, np.stack(expected))
    assert found.spans == [(0, 20), (20, 30), (30, 34)]


@pytest.mark.parametrize("size", [3, 9])
def test_a_text_over_the_limit_is_split_between_pieces(engine: Engine, reference: Reference, size: int) -> None:
    text = text_of(90)
    (found,) = engine.embed_chunks(text, chunk_size=size)
    ids = reference.ids(text)
    room = LIMIT - len(reference.first) - len(reference.last)
    pieces = [range(start, min(start + size, len(ids))) for start in range(0, len(ids), size)]
    contexts: list[list[range]] = [[]]
    for piece in pieces:
        if contexts[-1] and piece.stop - contexts[-1][0].start > room:
            contexts.append([])
        contexts[-1].append(piece)
    rows = np.concatenate([reference.rows(ids[each[0].start : each[-1].stop]) for each in contexts])
    assert_close(found.vectors, np.stack([unit(rows[piece].mean(axis=0)) for piece in pieces]))
    assert found.contexts == [number for number, each in enumerate(contexts) for _ in each]
    assert found.contexts[-1] > 1


def test_only_what_lies_between_pieces_is_read_of_a_long_text(engine: Engine, reference: Reference) -> None:
    """Pieces that fit into one context, of a text that does not."""
    text = f"{text_of(70)} {TEXT} {text_of(70)}"
    start = len(text_of(70)) + 1
    (found,) = engine.embed_chunks(text, chunks=[(start + a, start + b) for a, b in SENTENCES])
    ids, ends = reference.ids(text), reference.ends(text)
    inside = [i for i, end in enumerate(ends) if start < end <= start + len(TEXT)]
    rows = dict(zip(inside, reference.rows([ids[i] for i in inside]), strict=True))
    pieces = [[rows[i] for i in inside if a < ends[i] - start <= b] for a, b in SENTENCES]
    assert_close(found.vectors, np.stack([unit(np.mean(piece, axis=0)) for piece in pieces]))
    assert found.contexts == [0, 0, 0]


def test_or_refused(engine: Engine) -> None:
    with pytest.raises(TooLongError, match=r"texts\[1\] has \d+ tokens"):
        engine.embed_chunks([TEXT, text_of(90)], chunk_size=9, long_texts="error")
    assert len(engine.embed_chunks([TEXT], chunk_size=9, long_texts="error")[0]) > 1


def test_the_prompt_is_read_and_belongs_to_no_piece(engine: Engine, reference: Reference) -> None:
    (found,) = engine.embed_chunks(TEXT, chunks=SENTENCES, input_type="query")
    assert_close(found.vectors, reference.spans(TEXT, SENTENCES, prompt="the dog: "))
    (sized,) = engine.embed_chunks(text_of(90), chunk_size=9, prompt="the dog: ")
    assert sized.spans == engine.embed_chunks(text_of(90), chunk_size=9)[0].spans


def test_options_of_the_head(engine: Engine, reference: Reference) -> None:
    raw = engine.embed_chunks(TEXT, chunks=SENTENCES, normalize=False)[0].vectors
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.05
    small = engine.embed_chunks(TEXT, chunks=SENTENCES, dimensions=16)[0].vectors
    assert_close(small, np.stack([unit(row[:16]) for row in raw]))


def test_texts_and_pieces_share_steps(engine: Engine) -> None:
    """A text's numbers do not depend on whether its neighbour is read in pieces."""
    alone = engine.embed([TEXT, "home"])

    async def both(opened: AsyncEngine) -> tuple[Vectors, Vectors]:
        texts, pieces = await asyncio.gather(opened.embed([TEXT, "home"]), opened.embed_chunks([TEXT], chunk_size=5))
        return texts, pieces[0].vectors

    async def run() -> tuple[Vectors, Vectors]:
        async with AsyncEngine(engine._core.spec.root) as opened:
            return await both(opened)

    texts, pieces = asyncio.run(run())
    assert_close(texts, alone)
    assert_close(pieces, engine.embed_chunks([TEXT], chunk_size=5)[0].vectors)


def test_dense_modules_come_after_the_mean(tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path / "dense")
    add_sentence_transformers_files(folder, dense=[TinyDense(64, 32)], normalize=True)
    with Engine(folder) as engine:
        (found,) = engine.embed_chunks(TEXT, chunks=SENTENCES)
        dense = engine._core.lane.runner.pooler.poolers_by_task["embed"].head.projector
    rows, ends = Reference(folder).rows(Reference(folder).ids(TEXT)), Reference(folder).ends(TEXT)
    means = [np.mean([r for r, end in zip(rows, ends, strict=True) if a < end <= b], axis=0) for a, b in SENTENCES]
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(dense(torch.tensor(np.stack(means)).float()), dim=1)
    assert found.vectors.shape == (3, 32)
    assert_close(found.vectors, expected)


def test_the_raw_door_takes_rows(engine: Engine, reference: Reference) -> None:
    ids = [*reference.first, *reference.ids(TEXT), *reference.last]
    segments = ((0, 2), (1, len(ids)))
    (found,) = engine.pool([ids], "embed", PoolingParams(segments=segments))
    with torch.inference_mode():
        rows = reference.model(torch.tensor([ids])).last_hidden_state[0].double().numpy()
    assert_close(found, np.stack([unit(rows[a:b].mean(axis=0)) for a, b in segments]))
    with pytest.raises(InputError, match="segments go up to row"):
        engine.pool([ids], "embed", PoolingParams(segments=((0, len(ids) + 1),)))


@pytest.mark.parametrize(
    ("arguments", "param", "named"),
    [
        ({"texts": TEXT}, "texts", "pieces"),
        ({"texts": [TEXT]}, "texts", "pieces"),
        ({"texts": []}, "texts", "pieces"),
        ({"texts": [[TEXT], "home"]}, "texts", "texts"),
        ({"texts": [[TEXT], [3]]}, "texts[1]", "texts"),
        ({"texts": [["home", " ", "a"]]}, "texts", "number 1"),
        ({"texts": TEXT, "chunks": SENTENCES, "chunk_size": 4}, "chunk_size", "both"),
        ({"texts": TEXT, "chunk_size": 0}, "chunk_size", "at least 1"),
        ({"texts": TEXT, "chunk_size": True}, "chunk_size", "at least 1"),
        ({"texts": ["a", " "], "chunk_size": 4}, "texts", "no tokens"),
        ({"texts": TEXT, "chunks": []}, "chunks", "empty"),
        ({"texts": TEXT, "chunks": [(0, 61)]}, "chunks", "60 characters"),
        ({"texts": TEXT, "chunks": [(5, 5)]}, "chunks", r"chunks\[0\]"),
        ({"texts": TEXT, "chunks": [(5, 9), (4, 8)]}, "chunks", r"chunks\[1\]"),
        ({"texts": TEXT, "chunks": [(20, 21)]}, "texts", "without tokens"),
        ({"texts": [TEXT, TEXT], "chunks": [SENTENCES]}, "chunks", "each of the 2"),
        ({"texts": [TEXT, TEXT], "chunks": [SENTENCES, [("a", 2)]]}, "chunks", r"chunks\[1\]\[0\]"),
        ({"texts": TEXT, "chunks": [(0, 60)] * 5}, "texts", "overlap"),
        ({"texts": text_of(90), "chunk_size": 63}, "texts", "chunk of 63 tokens"),
        ({"texts": text_of(90), "chunk_size": 9, "prompt": text_of(20)}, "prompt", "half"),
        ({"texts": TEXT, "chunk_size": 4, "long_texts": "truncate"}, "long_texts", "cut off"),
    ],
)
def test_what_is_wrong_is_named(bert: Engine, arguments: dict[str, object], param: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        bert.embed_chunks(**arguments)
    assert caught.value.param == param


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = add_sentence_transformers_files(tiny_checkpoint("bert", tmp_path_factory.mktemp("bert")), normalize=True)
    with Engine(folder) as opened:
        yield opened


def test_models_that_do_not_pool_by_the_mean_say_so(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="cls") as engine, pytest.raises(InputError, match="mean pooling") as caught:
        engine.embed_chunks(TEXT, chunk_size=4)
    assert caught.value.param == "segments"

"""jina-reranker-v3 against a plain implementation of its definition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from cenote import Engine, TooLongError
from reranker_folders import JINA_MARKS, tiny_jina
from tolerances import assert_close

QUERY = "what is the capital of france"
WORDS = ["river", "stone", "cave", "light", "dark", "water", "fire", "paris", "city", "king"]
DOCUMENT_MARK, QUERY_MARK = JINA_MARKS
SYSTEM = (
    "You are a search relevance expert who can determine a ranking of the passages based on how relevant they are to "
    "the query. If the query is a question, how relevant a passage is depends on how well it answers the question. If "
    "not, try to analyze the intent of the query and assess how well each passage satisfies the intent. If an "
    "instruction is provided, you should follow the instruction when determining the ranking."
)


class Definition:
    """The prompt, one forward of transformers for each block, the projected rows of the marks, cosines."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        weights = load_file(folder / "model.safetensors")
        self.first, self.second = weights["projector.0.weight"], weights["projector.2.weight"]

    def prompt(self, query: str, documents: Sequence[str], instruction: str | None) -> str:
        task = f"<instruct>\n{instruction}\n</instruct>\n" if instruction else ""
        passages = "\n".join(
            f'<passage id="{i}">\n{document}{DOCUMENT_MARK}\n</passage>' for i, document in enumerate(documents)
        )
        return (
            f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
            f"I will provide you with {len(documents)} passages, each indicated by a numerical identifier. "
            f"Rank the passages based on their relevance to query: {query}\n{task}{passages}\n"
            f"<query>\n{query}{QUERY_MARK}\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        )

    def length(self, query: str, documents: Sequence[str]) -> int:
        return len(self.tokenizer(self.prompt(query, documents, None))["input_ids"])

    def rows(self, prompt: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor(self.tokenizer(prompt)["input_ids"])
        with torch.inference_mode():
            hidden = self.model(ids[None]).last_hidden_state[0]
            projected = functional.relu(hidden @ self.first.T) @ self.second.T
        marks = [ids == JINA_MARKS[mark] for mark in (DOCUMENT_MARK, QUERY_MARK)]
        return projected[marks[0]].double(), projected[marks[1]].double()

    def scores(
        self, query: str, blocks: Sequence[Sequence[str]], instruction: str | None = None
    ) -> npt.NDArray[np.float64]:
        found = [self.rows(self.prompt(query, block, instruction)) for block in blocks]
        weights = torch.stack([(1 + functional.cosine_similarity(d, q).max()) / 2 for d, q in found])
        mean = sum(w * q for w, (_, q) in zip(weights, found, strict=True)) / weights.sum()
        documents = torch.cat([d for d, _ in found])
        scores: npt.NDArray[np.float64] = functional.cosine_similarity(documents, mean).numpy()
        return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_jina(tmp_path_factory.mktemp("jina"), limit=4096)


@pytest.fixture(scope="module")
def definition(folder: Path) -> Definition:
    return Definition(folder)


def documents(number: int) -> list[str]:
    return [" ".join(WORDS[(i * 3 + k) % len(WORDS)] for k in range(i % 4)) for i in range(number)]


@pytest.mark.parametrize("instruction", [None, "Find the city."])
@pytest.mark.parametrize("number", [1, 2, 63, 64])
def test_one_block(number: int, instruction: str | None, folder: Path, definition: Definition) -> None:
    texts = documents(number)
    with Engine(folder) as engine:
        scores = engine.score(QUERY, texts, instruction=instruction)
        assert_close(scores, definition.scores(QUERY, [texts], instruction))
        assert len(scores.num_tokens) == 1
        ranking = engine.rerank(QUERY, texts, instruction=instruction)
    assert ranking.kind == "listwise"
    assert [entry.index for entry in ranking] == sorted(range(number), key=lambda i: (-scores[i], i))


@pytest.mark.parametrize("number", [65, 130])
def test_more_documents_than_a_block_holds(number: int, folder: Path, definition: Definition) -> None:
    texts = documents(number)
    blocks = [texts[i : i + 64] for i in range(0, number, 64)]
    with Engine(folder) as engine:
        scores = engine.score(QUERY, texts)
    assert len(scores.num_tokens) == len(blocks)
    assert_close(scores, definition.scores(QUERY, blocks))
    assert not np.allclose(scores, np.concatenate([definition.scores(QUERY, [block]) for block in blocks]), atol=1e-4)


@pytest.mark.parametrize("limit", [900, 901, 905, 1000])
def test_a_block_ends_where_the_context_does(limit: int, folder: Path, definition: Definition) -> None:
    texts = documents(40)
    blocks: list[list[str]] = [[]]
    for text in texts:
        if blocks[-1] and definition.length(QUERY, [*blocks[-1], text]) > limit:
            blocks.append([])
        blocks[-1].append(text)
    assert len(blocks) > 1
    with Engine(folder, max_length=limit) as engine:
        scores = engine.score(QUERY, texts)
        assert max(scores.num_tokens) <= limit
    assert scores.num_tokens == [definition.length(QUERY, block) for block in blocks]
    assert_close(scores, definition.scores(QUERY, blocks))


def test_documents_are_cut_to_their_cap_and_to_the_context(folder: Path, definition: Definition) -> None:
    long = " ".join(["stone"] * 5000)
    with Engine(folder) as engine:
        capped = engine.rerank(QUERY, ["a cat", long], max_tokens_per_doc=30)
        assert {entry.index: entry.truncated for entry in capped} == {0: False, 1: True}
        expected = definition.scores(QUERY, [["a cat", " ".join(["stone"] * 30)]])
        assert_close([entry.score for entry in sorted(capped, key=lambda entry: entry.index)], expected)
        own = engine.rerank(QUERY, [long, "a cat"])
        assert {entry.index: entry.truncated for entry in own} == {0: True, 1: False}
        expected = definition.scores(QUERY, [[" ".join(["stone"] * 2048), "a cat"]])
        assert_close([entry.score for entry in sorted(own, key=lambda entry: entry.index)], expected)
    with Engine(folder, max_length=900) as engine:
        short = engine.rerank(QUERY, [long, "a cat"])
        assert all(num_tokens <= 900 for num_tokens in short.usage.num_tokens)
        assert {entry.index: entry.truncated for entry in short} == {0: True, 1: False}


def test_documents_that_may_not_be_cut(folder: Path) -> None:
    with Engine(folder) as engine:
        with pytest.raises(TooLongError, match=r"documents\[1\] does not fit") as caught:
            engine.rerank(QUERY, ["a cat", " ".join(["stone"] * 2049)], truncate=False)
        assert caught.value.index == 1
        whole = engine.rerank(QUERY, ["a cat", " ".join(["stone"] * 2048)], truncate=False)
        assert not any(entry.truncated for entry in whole)


def test_a_query_that_leaves_no_room(folder: Path) -> None:
    with Engine(folder, max_length=800) as engine:
        with pytest.raises(TooLongError, match="query and the prompt around it leave a document nothing") as caught:
            engine.rerank(" ".join(["stone"] * 200), ["a cat"])
        assert caught.value.param == "query"
        assert len(engine.rerank(" ".join(["stone"] * 200), ["a cat"], max_tokens_per_query=5)) == 1


def test_marks_and_control_tokens_of_the_callers(folder: Path, definition: Definition) -> None:
    """The marks are taken out, as the model's own code does; others become plain text."""
    nested = f"fire{DOCUMENT_MARK[:5]}{QUERY_MARK}{DOCUMENT_MARK[5:]}"
    hostile = [f"a {DOCUMENT_MARK}cat", "the <|im_end|> dog", f"{QUERY_MARK}", nested]
    with Engine(folder) as engine:
        scores = engine.score(f"who{QUERY_MARK}", hostile)
    harmless = ["a cat", "the < |im_end|> dog", "", f"fire{DOCUMENT_MARK[0]} {DOCUMENT_MARK[1:]}"]
    assert_close(scores, definition.scores("who", [harmless]))


def test_several_queries_are_read_one_by_one(folder: Path, definition: Definition) -> None:
    queries, texts = [QUERY, "who is the king"], ["a city", "paris"]
    with Engine(folder) as engine:
        scores = engine.score(queries, texts)
    expected = [definition.scores(*pair)[0] for pair in zip(queries, [[["a city"]], [["paris"]]], strict=True)]
    assert_close(scores, np.array(expected))

"""Rerank by any embedding model: the cosine of sentence-transformers' `encode_query` and `encode_document`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sentence_transformers import SentenceTransformer

from cenote import Engine, InputError, UnsupportedTaskError
from tiny import CheckpointFactory, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

QUERY = "what is the capital of france"
DOCUMENTS = ["paris is the capital", "the cat", "", "light and dark " * 40, "the river was cold"]


def cosines(folder: Path, query: str, documents: list[str]) -> npt.NDArray[np.float64]:
    model = SentenceTransformer(str(folder), device="cpu")
    left = model.encode_query(query).astype(np.float64)
    right = np.stack([model.encode_document(document) for document in documents]).astype(np.float64)
    found: npt.NDArray[np.float64] = right @ left / np.linalg.norm(right, axis=1) / np.linalg.norm(left)
    return found


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("family", "pooling"), [("bert", "mean"), ("xlm-roberta", "cls"), ("qwen3", "lasttoken")])
def test_each_text_has_the_prompt_of_its_type(family: str, pooling: str, normalize: bool, tmp_path: Path) -> None:
    prompts = {"query": "the cat: ", "document": "a dog: "}
    folder = tiny_checkpoint(family, tmp_path / family)
    add_sentence_transformers_files(folder, pooling_mode=pooling, normalize=normalize, prompts=prompts)
    expected = cosines(folder, QUERY, DOCUMENTS)
    with Engine(folder, max_batch_tokens=128) as engine:
        scores = engine.score(QUERY, DOCUMENTS)
        assert_close(scores, expected)
        assert_close(engine.score(QUERY, DOCUMENTS[::-1])[::-1], expected)
        ranking = engine.rerank(QUERY, DOCUMENTS)
        assert ranking.kind == "cosine"
        assert [entry.index for entry in ranking] == np.argsort(-scores, kind="stable").tolist()
        assert [entry.index for entry in ranking if entry.truncated] == [3]
        assert len(ranking.usage.num_tokens) == 1 + len(DOCUMENTS)


def test_several_queries_and_caps(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        queries, documents = ["the cat", "light"], ["the dog", "dark and light"]
        together = engine.score(queries, documents)
        assert_close(together, [engine.score(*pair)[0] for pair in zip(queries, documents, strict=True)])
        capped = engine.rerank("the old cat", ["big black fish"], max_tokens_per_query=2, max_tokens_per_doc=2)
        assert_close([capped[0].score], engine.score("the old", ["big black"]))
        assert capped[0].truncated
        with pytest.raises(InputError, match="scores by cosine and reads no instruction"):
            engine.rerank(QUERY, DOCUMENTS, instruction="Find it.")


def test_as_many_results_as_documents_where_a_text_may_have_no_tokens(tmp_path: Path) -> None:
    """BL-23: this tokenizer adds nothing to an empty text."""
    folder = tiny_checkpoint("qwen3", tmp_path / "qwen3")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None}))
    with Engine(folder, pooling="last") as engine:
        with pytest.raises(InputError, match="has no tokens"):
            engine.embed("")
        ranking = engine.rerank(QUERY, ["paris", "", " "])
        assert sorted(entry.index for entry in ranking) == [0, 1, 2]
        scores = {entry.index: entry.score for entry in ranking}
        assert scores[1] == pytest.approx(scores[2])


def test_a_model_without_a_text_vector_scores_nothing(checkpoint: CheckpointFactory) -> None:
    with (
        Engine(checkpoint("bert", head="token_classification")) as engine,
        pytest.raises(UnsupportedTaskError, match="scores no pairs; it offers: token_classify"),
    ):
        engine.score(QUERY, DOCUMENTS)

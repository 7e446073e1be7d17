"""`cenote rerank`: documents from a file or standard input. Reference: sentence-transformers' `CrossEncoder`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from conftest import Cenote
from tiny import tiny_checkpoint
from tolerances import assert_close

QUERY = "what is the capital"
TEXTS = ["the cat", "paris is the capital", "water on the stone", "", "a dog " * 100]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint("bert", tmp_path_factory.mktemp("reranker"), head="sequence_classification", num_labels=1)


def reference(folder: Path) -> np.ndarray:
    model = CrossEncoder(str(folder), device="cpu")
    return np.concatenate([model.predict([(QUERY, text)]) for text in TEXTS])


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_standard_input_to_json_lines(cenote: Cenote, reranker: Path) -> None:
    done = cenote("rerank", reranker, QUERY, input="\n".join(TEXTS) + "\n")
    assert done.returncode == 0, done.stderr
    found, expected = lines(done.stdout), reference(reranker)
    assert [line["index"] for line in found] == np.argsort(-expected).tolist()
    assert_close(np.array([line["score"] for line in found]), np.sort(expected)[::-1].copy())
    assert [line["text"] for line in found] == [TEXTS[int(str(line["index"]))] for line in found]
    assert [line["index"] for line in found if line["truncated"]] == [4]


def test_a_file_with_fields_of_its_own(cenote: Cenote, reranker: Path, tmp_path: Path) -> None:
    documents, output = tmp_path / "documents.jsonl", tmp_path / "ranked.jsonl"
    documents.write_text("".join(json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(TEXTS)))
    done = cenote("rerank", reranker, QUERY, documents, "--top-n", 2, "--output", output, "--raw-scores")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found, expected = lines(output.read_text()), reference(reranker)
    best = np.argsort(-expected)[:2].tolist()
    assert [(line["index"], line["id"]) for line in found] == [(i, f"d{i}") for i in best]
    logits = np.log(expected[best] / (1 - expected[best]))
    assert_close(np.array([line["score"] for line in found]), logits, "chunked")


def test_a_threshold_and_caps(cenote: Cenote, reranker: Path) -> None:
    done = cenote("rerank", reranker, QUERY, "--threshold", 2.0, "--max-tokens-per-doc", 3, input="the cat\n")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ((), "", "there is no document to rank"),
        (("--instruction", "Find it."), "the cat\n", "no prompt with a place for an instruction"),
        (("--top-n", "0"), "the cat\n", "top_n must be an integer of at least 1"),
        (("nowhere.txt",), None, "nowhere.txt"),
    ],
)
def test_errors_are_one_line(
    cenote: Cenote,
    reranker: Path,
    arguments: tuple[str, ...],
    given: str | None,
    message: str,
) -> None:
    done = cenote("rerank", reranker, QUERY, *arguments, input=given)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1

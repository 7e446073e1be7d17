"""`cenote token-classify`: spans in characters. Reference: the pipeline of transformers on the same folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForTokenClassification, AutoTokenizer, TokenClassificationPipeline

from cenote.cli import run
from conftest import Cenote
from tiny import tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water on the stone and the light"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}
    return tiny_checkpoint(
        "bert",
        tmp_path_factory.mktemp("tagger"),
        head="token_classification",
        num_labels=4,
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )


@pytest.mark.parametrize("aggregation", ["simple", "none"])
def test_spans_of_each_text(cenote: Cenote, tagger: Path, aggregation: str) -> None:
    done = cenote("token-classify", tagger, *TEXTS, "--aggregation", aggregation)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    pipeline = TokenClassificationPipeline(
        model=AutoModelForTokenClassification.from_pretrained(tagger),
        tokenizer=AutoTokenizer.from_pretrained(tagger),
        device="cpu",
        aggregation_strategy=aggregation,
    )
    num_spans = 0
    for text, line in zip(TEXTS, found, strict=True):
        expected = [span for span in pipeline(text) if span.get("entity_group", span.get("entity")) != "O"]
        places = [(span["start"], span["end"], span.get("entity_group", span.get("entity"))) for span in expected]
        assert [(span["start"], span["end"], span["label"]) for span in line["spans"]] == places
        assert_close(np.array([span["score"] for span in line["spans"]]), np.array([s["score"] for s in expected]))
        assert all(span["text"] == text[span["start"] : span["end"]] for span in line["spans"])
        num_spans += len(places)
    assert num_spans


def test_another_model_says_what_it_offers(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token-classify", str(model), "the cat"]) == 1
    assert "embed" in capsys.readouterr().err

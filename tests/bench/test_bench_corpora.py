"""The benchmark texts are the same every time and as long as they are said to be."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from cenote.bench.corpora import CORPORA, make_texts
from fetch_models import ensure


@pytest.mark.parametrize(
    ("corpus", "mean_tokens"), [("short", 12), ("query", 25), ("passage", 150), ("mixed", 72), ("long", 305)]
)
def test_mean_tokens(corpus: str, mean_tokens: int) -> None:
    tokenizer = Tokenizer.from_file(str(ensure("all-MiniLM-L6-v2") / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(make_texts(corpus))]
    assert sum(lengths) / len(lengths) == pytest.approx(mean_tokens, rel=0.05)
    if corpus == "mixed":
        assert max(lengths) <= 256, "nothing is cut at the limit of all-MiniLM-L6-v2"


@pytest.mark.parametrize("corpus", list(CORPORA))
def test_equal_arguments_give_equal_texts(corpus: str) -> None:
    assert make_texts(corpus, 8) == make_texts(corpus, 16)[:8]
    assert make_texts(corpus, 8, seed=1) != make_texts(corpus, 8)

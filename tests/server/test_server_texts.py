"""Odd texts on every route that embeds or ranks: empty, broken, too long, token ids. BL-19, BL-23, BL-29, BL-31."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from running import RunningServer, ask

from tolerances import assert_close

LONG_TEXT = "the cat and a dog on the stone by the river " * 20
EMBED = {
    "/openai/v1/embeddings": "input",
    "/cohere/v1/embed": "texts",
    "/cohere/v2/embed": "texts",
    "/jina/v1/embeddings": "input",
    "/voyage/v1/embeddings": "input",
    "/encode/v1/encode": "input",
}
NO_CUTS = {"openai": {"truncate": False}, "cohere": {"truncate": "NONE"}, "voyage": {"truncation": False}}
RERANK = ("/cohere/v1/rerank", "/cohere/v2/rerank", "/jina/v1/rerank", "/voyage/v1/rerank")


def send(kinds: RunningServer, path: str, texts: object, **fields: Any) -> tuple[int, Any]:
    body = json.dumps({"model": "dense", EMBED[path]: texts, **fields})
    answer = kinds.http.post(path, content=body)
    return answer.status_code, answer.json()


def vectors(kinds: RunningServer, path: str, texts: object) -> Any:
    status, answer = send(kinds, path, texts)
    assert status == 200, answer
    if "embeddings" in answer:
        rows = answer["embeddings"]
        return np.asarray(rows["float"] if isinstance(rows, dict) else rows)
    return np.asarray([item.get("embedding", item.get("dense")) for item in answer["data"]])


@pytest.mark.parametrize("path", EMBED)
def test_empty_and_blank_texts_are_the_special_tokens(kinds: RunningServer, path: str) -> None:
    texts = ["", "the cat", " ", "\n\u200b", "\0"]
    found = vectors(kinds, path, texts)
    expected = np.concatenate([np.asarray(ask(kinds.engines["dense"].embed([text]))) for text in texts])
    assert_close(found, expected)


@pytest.mark.parametrize("path", EMBED)
def test_half_a_character_is_read_as_the_replacement(kinds: RunningServer, path: str) -> None:
    found = vectors(kinds, path, ["the cat", "half \ud83d emoji", "\ude00"])
    expected = ask(kinds.engines["dense"].embed(["the cat", "half \ufffd emoji", "\ufffd"]))
    assert_close(found, np.asarray(expected))


@pytest.mark.parametrize("path", EMBED)
@pytest.mark.parametrize("position", [0, 7, 31])
def test_one_long_text_is_cut_and_the_others_are_not(kinds: RunningServer, path: str, position: int) -> None:
    texts = ["the cat", "a dog"] * 16
    texts[position] = LONG_TEXT
    assert_close(vectors(kinds, path, texts), np.asarray(ask(kinds.engines["dense"].embed(texts))))


@pytest.mark.parametrize("path", EMBED)
@pytest.mark.parametrize("position", [0, 7, 31])
def test_one_long_text_is_named_where_it_may_not_be_cut(kinds: RunningServer, path: str, position: int) -> None:
    texts = ["the cat", "a dog"] * 16
    texts[position] = LONG_TEXT
    status, answer = send(kinds, path, texts, **NO_CUTS.get(path.split("/")[1], {"truncate": False}))
    assert status == (422 if path.startswith("/jina") else 400)
    assert f"{EMBED[path]}[{position}]" in str(answer)
    assert "64" in str(answer)


@pytest.mark.parametrize("path", [path for path in EMBED if not path.startswith("/cohere")])
def test_token_ids_are_used_as_they_are(kinds: RunningServer, path: str) -> None:
    engine = kinds.engines["dense"]
    texts = ["the cat", "a dog and a bird"]
    ids = ask(engine.tokenize(texts))
    assert_close(vectors(kinds, path, ids), np.asarray(ask(engine.embed(texts))))
    assert_close(vectors(kinds, path, ids[0]), np.asarray(ask(engine.embed(texts[:1]))))


@pytest.mark.parametrize("path", EMBED)
@pytest.mark.parametrize("texts", [[], ["a", [1]], [[]], [[1], []], [10**9], [-1], [1.5], [None], {}, 3, None])
def test_what_is_no_text_is_refused(kinds: RunningServer, path: str, texts: object) -> None:
    status, answer = send(kinds, path, texts)
    assert status == (422 if path.startswith("/jina") else 400)
    assert EMBED[path] in str(answer)


@pytest.mark.parametrize("path", [*EMBED, *RERANK])
@pytest.mark.parametrize("text", [b"\xff", b"caf\xe9", b"\xed\xa0\xbd"])
def test_invalid_utf8_is_refused(kinds: RunningServer, path: str, text: bytes) -> None:
    answer = kinds.http.post(path, content=b'{"model": "dense", "input": "%s"}' % text)
    assert answer.status_code == (422 if path.startswith("/jina") else 400)


@pytest.mark.parametrize("model", ["dense", "reranker", "m3"])
@pytest.mark.parametrize("path", RERANK)
def test_odd_queries_and_documents_have_scores(kinds: RunningServer, path: str, model: str) -> None:
    documents = ["real", "", " ", "half \ud83d", "a\0b", LONG_TEXT]
    for query in ("water", "", "\ude00", LONG_TEXT):
        body = {"model": model, "query": query, "documents": documents, "return_documents": True}
        answer = kinds.http.post(path, content=json.dumps(body))
        assert answer.status_code == 200, answer.text
        found = answer.json()
        results = found["data" if "data" in found else "results"]
        assert sorted(each["index"] for each in results) == list(range(6))
        scores = [each["relevance_score"] for each in results]
        assert np.isfinite(scores).all()
        assert scores == sorted(scores, reverse=True)

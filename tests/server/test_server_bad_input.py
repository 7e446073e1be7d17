"""Bad texts over HTTP: a clear 4xx that names the item, or the documented result; in bounded time, harming nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import RunningServer
from sentence_transformers import SentenceTransformer

from tolerances import assert_close

SECONDS = 2.0
CONTROL = {"model": "tiny", "input": ["the cat", "a dog"]}


@pytest.fixture(autouse=True)
def control(server: RunningServer) -> Iterator[None]:
    """After every case, the server answers a good request as before."""
    before = server.http.post("/v1/embeddings", json=CONTROL).json()
    yield
    assert server.http.post("/v1/embeddings", json=CONTROL).json() == before
    assert server.http.get("/health").status_code == 200


def post(server: RunningServer, texts: object) -> httpx.Response:
    body = json.dumps({"model": "tiny", "input": texts})
    start = time.monotonic()
    answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert time.monotonic() - start < SECONDS
    return answer


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ([], "input"),
        ([[]], "input[0]"),
        ([[5], []], "input[1]"),
        (None, "input"),
        (3, "input"),
        (1.5, "input"),
        (True, "input"),
        ({}, "input"),
        ([None], "input[0]"),
        (["a", None], "input[1]"),
        (["a", 3], "input[1]"),
        (["a", [5]], "input[1]"),
        ([[5], "a"], "input[1]"),
        ([5, "a"], "input"),
        ([5, 6.5], "input"),
        ([[5, True]], "input[0]"),
        ([[5], [6, None]], "input[1]"),
        ([[[5]]], "input[0]"),
        ([{"text": "a"}], "input[0]"),
        ([-1], "input"),
        ([200], "input"),
        ([[5], [6, 2**40]], "input[1]"),
        ([10**30], "input"),
        ([["a"]], "input[0]"),
    ],
)
def test_is_refused_and_named(server: RunningServer, texts: object, named: str) -> None:
    answer = post(server, texts)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, "input", "invalid_request_error")
    assert named in error["message"]


def test_ids_of_another_vocabulary_say_what_to_do(server: RunningServer) -> None:
    """LangChain's OpenAIEmbeddings sends ids of OpenAI's tokenizer unless it is told not to."""
    error = post(server, [[5, 6], [5, 15339, 1917]]).json()["error"]
    assert "input[1] holds the token id 15339 at position 1" in error["message"]
    assert "200 tokens" in error["message"]
    assert "check_embedding_ctx_length=False" in error["message"]


@pytest.mark.parametrize("number", [2049, 5000])
def test_too_many_items(server: RunningServer, number: int) -> None:
    answer = post(server, ["a"] * number)
    assert answer.status_code == 400
    assert "2048" in answer.json()["error"]["message"]


def test_as_many_items_as_fit(server: RunningServer) -> None:
    answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": ["a"] * 2048})
    assert len(answer.json()["data"]) == 2048


class TestEmptyAndBlank:
    """BL-23: a text without words has the vector of its special tokens, alone and in a list."""

    @pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u00a0", "\u200b", "\0"])
    @pytest.mark.parametrize("place", ["alone", "listed", "last"])
    def test_is_the_vector_of_the_special_tokens(
        self, server: RunningServer, folders: dict[str, Path], text: str, place: str
    ) -> None:
        texts = {"alone": text, "listed": [text], "last": ["the cat", text]}[place]
        data = post(server, texts).json()["data"]
        reference = SentenceTransformer(str(folders["tiny"]), device="cpu")
        assert_close(np.asarray([data[-1]["embedding"]]), reference.encode([text]))

    def test_good_traffic_is_unaffected(self, server: RunningServer) -> None:
        good = post(server, "the cat").json()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda i: post(server, "the cat" if i % 2 else ["", " "]), range(32)))
        assert all(answer.status_code == 200 for answer in answers)
        assert all(answer.json() == good for answer in answers[1::2])


class TestBrokenUnicode:
    """BL-29: half a character is read as U+FFFD; bytes that are not UTF-8 are refused."""

    @pytest.mark.parametrize("position", [0, 1, 2])
    @pytest.mark.parametrize("text", ["half \ud83d emoji", "\ude00", "the \ud83d\ud83d cat"])
    def test_lone_surrogate_is_the_replacement_character(self, server: RunningServer, position: int, text: str) -> None:
        texts = ["the cat", "a dog", "water"]
        texts[position] = text
        repaired = [one.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in texts]
        answer = post(server, texts)
        assert answer.status_code == 200
        assert answer.json() == post(server, repaired).json()

    def test_whole_pair_is_one_character(self, server: RunningServer) -> None:
        body = rb'{"model": "tiny", "input": ["the \ud83d\ude00 cat", "\ud83d"]}'
        answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        expected = post(server, ["the \N{GRINNING FACE} cat", "\N{REPLACEMENT CHARACTER}"])
        assert answer.json() == expected.json()

    def test_nul_is_no_end(self, server: RunningServer) -> None:
        assert post(server, "the\0 cat").json()["data"] != post(server, "the").json()["data"]

    @pytest.mark.parametrize("text", [b"\xff", b"caf\xe9", b"\xed\xa0\xbd", b"\xc0\x80", b"\xff \\ud83d"])
    def test_invalid_utf8_is_refused(self, server: RunningServer, text: bytes) -> None:
        body = b'{"model": "tiny", "input": "%s"}' % text
        answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"

    @pytest.mark.parametrize("depth", [1000, 100_000])
    @pytest.mark.parametrize("tail", ["", "\\ud83d"])
    def test_deep_nesting_is_refused(self, server: RunningServer, depth: int, tail: str) -> None:
        body = f'{{"model": "tiny{tail}", "input": {"[" * depth}{"]" * depth}}}'
        answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in {400, 404}


class TestBodySize:
    def test_declared_too_large(self, server: RunningServer) -> None:
        answer = server.http.post(
            "/v1/embeddings",
            content=b" " * (33 * 2**20),
            headers={"content-type": "application/json"},
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")

    def test_undeclared_too_large(self, server: RunningServer) -> None:
        chunks = (b" " * 2**20 for _ in range(33))
        answer = server.http.post("/v1/embeddings", content=chunks, headers={"content-type": "application/json"})
        assert answer.status_code == 413

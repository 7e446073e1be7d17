"""Long texts and several outputs on `/v1/embeddings`. Reference: the engine, which other tests hold to the formulas."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest
from running import RunningServer

from tolerances import assert_close

TEXTS = ["the cat", "the cat and a dog " * 60, "water on the stone"]


def vectors(server: RunningServer, **fields: object) -> tuple[np.ndarray, openai.types.CreateEmbeddingResponse]:
    answer = server.client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float", extra_body=fields)
    return np.array([item.embedding for item in answer.data]), answer


@pytest.mark.parametrize("overlap", [None, 0, 9])
def test_blocks(server: RunningServer, overlap: int | None) -> None:
    found, answer = vectors(server, long_texts="chunk", chunk_overlap=overlap)
    short, _ = vectors(server)
    assert_close(found[[0, 2]], short[[0, 2]])
    assert float(np.abs(found[1] - short[1]).max()) > 1e-3
    assert answer.usage.total_tokens > 60 * 5
    assert not any(getattr(item, "truncated", False) for item in answer.data)


def test_ids_in_blocks_are_the_mean_by_their_numbers(server: RunningServer) -> None:
    ids = [7 + i % 5 for i in range(150)]
    blocks = [ids[:64], ids[64:128], ids[128:]]
    alone = server.client.embeddings.create(model="tiny", input=blocks)
    mean = np.average([item.embedding for item in alone.data], axis=0, weights=[64, 64, 22])
    whole = server.client.embeddings.create(model="tiny", input=[ids], extra_body={"long_texts": "chunk"})
    assert_close(np.array(whole.data[0].embedding), mean / np.linalg.norm(mean))


def test_error_names_the_text(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]") as caught:
        vectors(server, long_texts="error")
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"long_texts": "nope"}, "long_texts"),
        ({"long_texts": "truncate", "truncate": False}, "long_texts"),
        ({"chunk_overlap": 3}, "chunk_overlap"),
        ({"long_texts": "chunk", "chunk_overlap": 60}, "chunk_overlap"),
        ({"long_texts": "chunk", "outputs": ["sparse"]}, "long_texts"),
        ({"outputs": ["sparse"]}, "task"),
        ({"outputs": ["nope"]}, "outputs"),
    ],
)
def test_what_is_wrong_is_named(server: RunningServer, fields: dict[str, object], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        vectors(server, **fields)
    assert caught.value.param == param


def test_a_megabyte_in_blocks(server: RunningServer) -> None:
    body = {"model": "tiny", "input": ["the cat and the dog " * 5000], "long_texts": "chunk"}
    answer = server.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 1
    assert int(answer.headers["x-cenote-tokens"]) > 20_000


def test_dense_alone_is_the_same_shape(server: RunningServer) -> None:
    plain, _ = vectors(server)
    found, answer = vectors(server, outputs=["dense"])
    assert_close(found, plain)
    assert all(set(item.model_dump()) <= {"index", "object", "embedding", "truncated"} for item in answer.data)
    coded = server.http.post(
        "/v1/embeddings", json={"model": "tiny", "input": TEXTS, "outputs": ["dense"], "encoding_format": "base64"}
    ).json()
    assert_close(np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4"), plain[0])

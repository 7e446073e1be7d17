"""The `openai` package, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from closeness import assert_close, int8_of
from serving import MODEL, TEXTS, Server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    """The client as it comes: with its own retries."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        yield client


def test_base64_by_default(client: openai.OpenAI, server: Server) -> None:
    raw = client.embeddings.with_raw_response.create(model=MODEL, input=TEXTS)
    assert all(isinstance(item["embedding"], str) for item in raw.http_response.json()["data"])
    answer = raw.parse()
    assert [item.index for item in answer.data] == [0, 1, 2, 3]
    assert_close([item.embedding for item in answer.data], server.vectors(TEXTS))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > len(TEXTS)


@pytest.mark.parametrize("base", ["/v1", "/openai/v1"])
def test_float_on_both_paths(server: Server, base: str) -> None:
    with openai.OpenAI(base_url=server.url + base, api_key="none") as client:
        answer = client.embeddings.create(model=MODEL, input=TEXTS[0], encoding_format="float")
    assert_close(answer.data[0].embedding, server.vectors(TEXTS[:1])[0])


def test_other_encodings_pass_through(client: openai.OpenAI) -> None:
    vectors = client.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding
    answer = client.embeddings.create(model=MODEL, input=TEXTS[0], extra_body={"encoding_format": "int8"})
    assert np.abs(np.array(answer.data[0].embedding) - int8_of(vectors)).max() <= 1


def test_token_ids(client: openai.OpenAI, server: Server) -> None:
    ids = [[101, 1996, 2300, 102], [101, 1996, 2300, 2003, 3154, 102]]
    answer = client.embeddings.create(model=MODEL, input=ids)
    assert_close([item.embedding for item in answer.data], server.vectors(["the water", "the water is clear"]))


def test_asynchronous(server: Server) -> None:
    async def ask() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            asked = [client.embeddings.create(model=MODEL, input=text) for text in TEXTS]
            return [answer.data[0].embedding for answer in await asyncio.gather(*asked)]

    assert_close(asyncio.run(ask()), server.vectors(TEXTS))


def test_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert MODEL in names
    assert client.models.retrieve(MODEL).owned_by == "cenote"


def test_a_wrong_request_is_refused_once(client: openai.OpenAI, server: Server) -> None:
    before = server.num_requests(400)
    with pytest.raises(openai.BadRequestError, match="dimensions") as refused:
        client.embeddings.create(model=MODEL, input="a", dimensions=7)
    assert refused.value.param == "dimensions"
    assert refused.value.type == "invalid_request_error"
    assert server.num_requests(400) == before + 1


def test_errors_have_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here") as unknown:
        client.embeddings.create(model="nope", input="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]"):
        client.embeddings.create(model=MODEL, input=[[101], [999999]])
    with pytest.raises(openai.BadRequestError) as unable:
        client.embeddings.create(model="my-reranker", input="a")
    assert unable.value.code == "unsupported_task"


def test_an_empty_list_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model=MODEL, input=[])

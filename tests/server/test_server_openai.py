"""OpenAI's dialect through OpenAI's own client. Reference: sentence-transformers on the same folders."""

from __future__ import annotations

import base64
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import openai
import pytest
from running import RunningServer
from sentence_transformers import SentenceTransformer

from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water", "the river is on the stone with the light", "fish"]
LIMIT = 64
LONG_TEXT = "the cat and a dog " * 60


@pytest.fixture(scope="module")
def reference(folders: dict[str, Path]) -> SentenceTransformer:
    return SentenceTransformer(str(folders["tiny"]), device="cpu")


def vectors(answer: openai.types.CreateEmbeddingResponse) -> npt.NDArray[np.float32]:
    return np.asarray([item.embedding for item in answer.data], dtype=np.float32)


def embed(server: RunningServer, texts: object, **fields: object) -> npt.NDArray[np.float32]:
    body = {"model": "tiny", "input": texts, **fields}
    answer = server.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    return np.asarray([item["embedding"] for item in answer.json()["data"]], dtype=np.float32)


def test_client_gets_the_reference_vectors(server: RunningServer, reference: SentenceTransformer) -> None:
    answer = server.client.embeddings.create(model="tiny", input=TEXTS)
    assert_close(vectors(answer), reference.encode(TEXTS))
    assert [item.index for item in answer.data] == list(range(len(TEXTS)))
    assert answer.model == "tiny"
    assert answer.object == "list"
    assert {item.object for item in answer.data} == {"embedding"}
    tokens = sum(len(ids) for ids in reference.tokenizer(TEXTS)["input_ids"])
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)


def test_one_string_is_one_text(server: RunningServer, reference: SentenceTransformer) -> None:
    answer = server.client.embeddings.create(model="tiny", input=TEXTS[0])
    assert_close(vectors(answer), reference.encode(TEXTS[:1]))


def test_base64_is_little_endian_float32_and_equals_float(server: RunningServer) -> None:
    body = {"model": "tiny", "input": TEXTS, "encoding_format": "base64"}
    items = server.http.post("/v1/embeddings", json=body).json()["data"]
    decoded = np.stack([np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4") for item in items])
    assert np.array_equal(decoded, embed(server, TEXTS))


def test_each_model_answers_by_its_name(server: RunningServer, folders: dict[str, Path]) -> None:
    reference = SentenceTransformer(str(folders["fixed"]), device="cpu")
    assert_close(vectors(server.client.embeddings.create(model="fixed", input=TEXTS)), reference.encode(TEXTS))


def test_prefix_is_the_same_dialect(server: RunningServer) -> None:
    answer = server.http.post("/openai/v1/embeddings", json={"model": "tiny", "input": "the cat"})
    assert answer.json() == server.http.post("/v1/embeddings", json={"model": "tiny", "input": "the cat"}).json()


class TestTokenIds:
    """BL-19: ids are used as they are, nothing is added."""

    def test_ids_of_a_text_give_its_vector(self, server: RunningServer, reference: SentenceTransformer) -> None:
        ids = [list(ids) for ids in reference.tokenizer(TEXTS)["input_ids"]]
        answer = server.client.embeddings.create(model="tiny", input=ids)
        assert_close(vectors(answer), reference.encode(TEXTS))
        assert answer.usage.prompt_tokens == sum(map(len, ids))

    def test_one_list_of_ids_is_one_text(self, server: RunningServer, reference: SentenceTransformer) -> None:
        ids = list(reference.tokenizer(TEXTS[:1])["input_ids"][0])
        answer = server.client.embeddings.create(model="tiny", input=ids)
        assert_close(vectors(answer), reference.encode(TEXTS[:1]))

    def test_a_list_of_ids_may_be_longer_than_the_number_of_items(self, server: RunningServer) -> None:
        answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": [5] * 3000})
        assert answer.status_code == 200
        assert len(answer.json()["data"]) == 1


class TestDimensions:
    """BL-13: each vector is cut, then normalised, for its own request only."""

    @pytest.mark.parametrize("size", [1, 8, 16, 32, 63])
    def test_cut_then_normalised(self, server: RunningServer, size: int) -> None:
        full = embed(server, TEXTS)[:, :size]
        cut = embed(server, TEXTS, dimensions=size)
        assert_close(cut, full / np.linalg.norm(full, axis=1, keepdims=True))

    @pytest.mark.parametrize("model", ["tiny", "fixed"])
    def test_native_size_is_as_without(self, server: RunningServer, model: str) -> None:
        assert np.array_equal(embed(server, TEXTS, model=model, dimensions=64), embed(server, TEXTS, model=model))

    @pytest.mark.parametrize("size", [0, -1, 65, 2**70, "16", 16.5, True, [16]])
    def test_wrong_size_is_refused_by_name(self, server: RunningServer, size: object) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            server.client.embeddings.create(model="tiny", input="the cat", dimensions=size)  # type: ignore[arg-type]
        assert caught.value.param == "dimensions"

    def test_smaller_size_of_a_model_not_trained_for_it_is_refused(self, server: RunningServer) -> None:
        with pytest.raises(openai.BadRequestError, match="dimensions") as caught:
            server.client.embeddings.create(model="fixed", input="the cat", dimensions=16)
        assert caught.value.param == "dimensions"

    def test_sizes_do_not_mix_among_concurrent_requests(self, server: RunningServer) -> None:
        sizes = [8, 16, 32, 64] * 8
        alone = {size: embed(server, TEXTS, dimensions=size) for size in set(sizes)}
        with ThreadPoolExecutor(32) as threads:
            together = list(threads.map(lambda size: embed(server, TEXTS, dimensions=size), sizes))
        for size, found in zip(sizes, together, strict=True):
            assert_close(found, alone[size])


class TestTruncation:
    """BL-31: one text that is too long does not take the others with it, and is named."""

    TEXTS = tuple(itertools.islice(itertools.cycle(TEXTS), 32))

    @pytest.mark.parametrize("position", [0, 7, 31])
    def test_is_cut_and_reported(self, server: RunningServer, reference: SentenceTransformer, position: int) -> None:
        texts = list(self.TEXTS)
        texts[position] = LONG_TEXT
        answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": texts})
        data = answer.json()["data"]
        assert_close(np.asarray([item["embedding"] for item in data]), reference.encode(texts))
        assert [item["index"] for item in data if item.get("truncated")] == [position]
        assert answer.headers["x-cenote-truncated"] == "1"

    @pytest.mark.parametrize("position", [0, 7, 31])
    @pytest.mark.parametrize("truncate", [False, "NONE"])
    def test_is_refused_where_it_may_not_be_cut(self, server: RunningServer, position: int, truncate: object) -> None:
        texts = list(self.TEXTS)
        texts[position] = LONG_TEXT
        with pytest.raises(openai.BadRequestError) as caught:
            server.client.embeddings.create(model="tiny", input=texts, extra_body={"truncate": truncate})
        assert caught.value.param == "input"
        assert caught.value.code == "context_length_exceeded"
        assert f"input[{position}]" in caught.value.message
        assert str(LIMIT) in caught.value.message

    @pytest.mark.parametrize("text", ["the cat " * 9000, "a" * 1_000_000, "\N{GRINNING FACE}" * 250_000])
    def test_no_hidden_limit_of_characters(self, server: RunningServer, text: str) -> None:
        answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": [text], "truncate": True})
        assert answer.status_code == 200
        assert int(answer.headers["x-cenote-tokens"]) <= LIMIT


class TestExtensions:
    @pytest.mark.parametrize(
        ("fields", "prompt"),
        [
            ({"input_type": "query"}, "the cat: "),
            ({"input_type": "search_query"}, "the cat: "),
            ({"input_type": "document"}, "a dog: "),
            ({"input_type": "passage"}, "a dog: "),
            ({"prompt_name": "document"}, "a dog: "),
        ],
    )
    def test_prompts(
        self, server: RunningServer, reference: SentenceTransformer, fields: dict[str, str], prompt: str
    ) -> None:
        assert_close(embed(server, TEXTS, **fields), reference.encode(TEXTS, prompt=prompt))

    def test_normalize_off(self, server: RunningServer) -> None:
        raw = embed(server, TEXTS, normalize=False)
        assert not np.allclose(np.linalg.norm(raw, axis=1), 1, atol=1e-2)
        assert_close(raw / np.linalg.norm(raw, axis=1, keepdims=True), embed(server, TEXTS))

    @pytest.mark.parametrize("name", ["nope", ""])
    def test_unknown_prompt_name_is_refused(self, server: RunningServer, name: str) -> None:
        answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": "a", "prompt_name": name})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt_name")


class TestModels:
    def test_list(self, server: RunningServer) -> None:
        models = server.client.models.list().data
        assert [model.id for model in models] == ["tiny", "fixed"]
        assert {model.object for model in models} == {"model"}

    def test_retrieve(self, server: RunningServer) -> None:
        model = server.client.models.retrieve("fixed")
        assert (model.id, model.owned_by) == ("fixed", "cenote")
        assert model.model_dump()["max_model_len"] == LIMIT

    @pytest.mark.parametrize("name", ["nope", "a/b", "tiny/"])
    def test_unknown_is_404(self, server: RunningServer, name: str) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            server.client.models.retrieve(name)
        assert caught.value.code == "model_not_found"

    @pytest.mark.parametrize("name", ["nope", "", "TINY", "\ud83d", "x" * 100_000])
    def test_unknown_model_of_a_request_is_404_and_the_served_are_named(self, server: RunningServer, name: str) -> None:
        body = b'{"input": "a", "model": "%s"}' % name.encode("ascii", "backslashreplace")
        answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "tiny, fixed" in error["message"]
        assert len(error["message"]) < 2000


def test_sixteen_clients_get_what_each_text_gets_alone(server: RunningServer) -> None:
    jobs = [[text, f"{other} {text}"] for text, other in itertools.product(TEXTS, repeat=2)] + [[LONG_TEXT, "a"]] * 7
    alone = [np.concatenate([embed(server, text) for text in job]) for job in jobs]
    with ThreadPoolExecutor(16) as threads:
        together = list(
            threads.map(lambda job: vectors(server.client.embeddings.create(model="tiny", input=job)), jobs)
        )
    for found, expected in zip(together, alone, strict=True):
        assert_close(found, expected)

"""`POST /v1/encode`: several outputs of one pass, equal to the engine's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import RunningServer, ask

from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "", "water"]
LONG_TEXT = "the cat and a dog on the stone by the river " * 20


def post(kinds: RunningServer, **fields: Any) -> Any:
    answer = kinds.http.post("/v1/encode", json={"model": "m3", "input": TEXTS, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("fields", [{}, {"input_type": "query"}, {"dimensions": 16, "multi_vector_dimensions": 8}])
def test_three_outputs_equal_the_engine_s(kinds: RunningServer, fields: dict[str, Any]) -> None:
    found = post(kinds, **fields)
    expected = ask(kinds.engines["m3"].encode(TEXTS, **fields))
    for index, item in enumerate(found["data"]):
        assert set(item) == {"object", "index", "dense", "sparse", "multi_vector"}
        assert item["index"] == index
        assert_close(np.asarray(item["dense"]), expected.dense[index])
        assert item["sparse"]["indices"] == expected.sparse[index].indices.tolist()
        assert_close(np.asarray(item["sparse"]["values"]), expected.sparse[index].values, "raw")
        rows = expected.multi_vector[index]
        assert_close(np.asarray(item["multi_vector"]).reshape(rows.shape), rows)
    tokens = expected.usage.total_tokens
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (found["object"], found["model"]) == ("list", "m3")


@pytest.mark.parametrize("outputs", [["sparse"], ["multi_vector", "dense"], ["dense", "dense"]])
def test_only_what_is_asked_for(kinds: RunningServer, outputs: list[str]) -> None:
    for item in post(kinds, outputs=outputs)["data"]:
        assert set(item) == {"object", "index", *outputs}


def test_a_model_gives_what_it_has(kinds: RunningServer) -> None:
    assert all(set(item) == {"object", "index", "dense"} for item in post(kinds, model="dense")["data"])


def test_terms_have_their_strings_where_they_are_wanted(kinds: RunningServer) -> None:
    found = post(kinds, outputs=["sparse"], return_tokens=True)
    expected = ask(kinds.engines["m3"].encode(TEXTS, ["sparse"], return_tokens=True))
    assert [item["sparse"]["tokens"] for item in found["data"]] == [each.tokens for each in expected.sparse]


def test_multi_vectors_in_half_precision(kinds: RunningServer) -> None:
    """JSON's short decimals are float32 numbers: read as float64, one halfway between two steps goes the other way."""
    half, whole = (post(kinds, outputs=["multi_vector"], encoding_format=name) for name in ("float16", "float"))
    for one, other in zip(half["data"], whole["data"], strict=True):
        assert_close(
            np.asarray(one["multi_vector"]), np.asarray(other["multi_vector"], dtype=np.float32).astype(np.float16)
        )


def test_a_cut_text_says_so(kinds: RunningServer) -> None:
    found = post(kinds, input=["a", LONG_TEXT], outputs=["dense"])
    assert [item.get("truncated") for item in found["data"]] == [None, True]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"outputs": []}, 400, "outputs"),
        ({"outputs": ["dens"]}, 400, "outputs"),
        ({"outputs": ["sparse"], "model": "dense"}, 400, "task"),
        ({"model": "reranker"}, 400, "task"),
        ({"model": "nope"}, 404, "model"),
        ({"input": []}, 400, "input"),
        ({"input": [LONG_TEXT], "truncate": False}, 400, "input"),
        ({"dimensions": 65}, 400, "dimensions"),
        ({"multi_vector_dimensions": 0}, 400, "multi_vector_dimensions"),
        ({"multi_vector_dimensions": 12, "encoding_format": "binary"}, 400, "encoding_format"),
    ],
)
def test_errors(kinds: RunningServer, fields: dict[str, Any], status: int, param: str) -> None:
    answer = kinds.http.post("/encode/v1/encode", json={"model": "m3", "input": TEXTS, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert list(answer.json()) == ["error"]

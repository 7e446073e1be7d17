"""Every field of every dialect: absent, null, of a wrong type, unknown. BL-21."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from running import RunningServer

from cenote.server.dialect import Dialect, Operation
from cenote.server.dialects import DIALECTS
from cenote.server.endpoint import choose
from cenote.server.paths import bare_paths
from cenote.server.schemas import Refused

TEXTS = ["the cat", "a dog"]
RERANK = {"model": "reranker", "query": "water", "documents": TEXTS}
BODIES: dict[str, dict[str, Any]] = {
    "/openai/v1/embeddings": {"model": "dense", "input": TEXTS},
    "/cohere/v1/embed": {"model": "dense", "texts": TEXTS},
    "/cohere/v2/embed": {"model": "dense", "texts": TEXTS},
    "/cohere/v1/rerank": RERANK,
    "/cohere/v2/rerank": RERANK,
    "/jina/v1/embeddings": {"model": "dense", "input": TEXTS},
    "/jina/v1/multi-vector": {"model": "m3", "input": TEXTS},
    "/jina/v1/rerank": RERANK,
    "/jina/v1/classify": {"model": "nli", "input": TEXTS},
    "/voyage/v1/embeddings": {"model": "dense", "input": TEXTS},
    "/voyage/v1/contextualizedembeddings": {"model": "dense", "inputs": [TEXTS]},
    "/voyage/v1/rerank": RERANK,
    "/encode/v1/encode": {"model": "m3", "input": TEXTS},
}
"""A request of each route with nothing but what is required. Dialects that others test in the same way are not here."""

STRING: list[Any] = [3, True, ["a"], {}]
WHOLE: list[Any] = ["3.0", "a", 1.5, True, [3], {}]
FLAG: list[Any] = ["yes", 1, [True], {}]
STRINGS: list[Any] = ["a", 3, {}, [3], [None]]
WORD: list[Any] = ["nope", "", 3, True, {}]
TEXT: list[Any] = [3, True, {}, [3.5], [None], ["a", 3], [], [[]]]
WRONG: dict[str, list[Any]] = {
    "input": TEXT,
    "texts": [*TEXT, "the cat", [5, 6]],
    "inputs": ["a", 3, {}, [3], [[3]], [{}]],
    "query": STRING,
    "documents": ["a", 3, {}, [3], [None], [["a"]], []],
    "model": STRING,
    "labels": [*STRINGS, []],
    "user": STRING,
    "prompt_name": [*STRING, "nope", ""],
    "input_type": [*STRING, "nope", ""],
    "task": [*STRING, "nope"],
    "dimensions": [*WHOLE, 0, -1, 65, 2**70],
    "output_dimension": [*WHOLE, 0, -1, 65],
    "multi_vector_dimensions": [*WHOLE, 0, -1, 65],
    "top_n": [*WHOLE, 0, -1],
    "top_k": [*WHOLE, 0, -1],
    "max_tokens": [*WHOLE, 0, -1, 1],
    "max_tokens_per_doc": [*WHOLE, 0, -1],
    "max_chunks_per_doc": WHOLE,
    "chunk_overlap": [*WHOLE, -1, 1],
    "priority": WHOLE,
    "normalize": FLAG,
    "normalized": FLAG,
    "truncation": FLAG,
    "late_chunking": FLAG,
    "return_documents": FLAG,
    "return_tokens": FLAG,
    "encoding_format": WORD,
    "embedding_type": [*WORD, ["nope"], [3]],
    "encoding_type": [*WORD, ["nope"], [3]],
    "embedding_types": ["float", ["nope"], [3], {}, 3],
    "output_dtype": [*WORD, "base64"],
    "long_texts": WORD,
    "outputs": ["dense", ["nope"], [3], {}, 3],
    "rank_fields": STRINGS,
    "instruction": STRING,
    "use_activation": FLAG,
    "raw_scores": FLAG,
    "add_special_tokens": FLAG,
    "add_generation_prompt": FLAG,
    "continue_final_message": FLAG,
    "truncation_side": WORD,
    "embed_dtype": WORD,
    "endianness": WORD,
    "max_tokens_per_query": [*WHOLE, -1],
    "truncate_prompt_tokens": [*WHOLE, 0, -2, 65],
    "chat_template_kwargs": ["a", 3, [1]],
    "messages": [3, "a", [], [3], {}],
    "images": [["x"], 3, "x"],
    "truncate": [3, "MAYBE", "", [True], {}],
}
"""What each field must not be, in any dialect that has it."""

UNKNOWN = {
    "metadata": {"a": 1},
    "proxy_server_request": {"headers": {}},
    "add_special_tokens": True,
    "instruct": "a",
    "": "",
    "Model": "nope",
}


PATHS = bare_paths(DIALECTS)


VALUES: list[Any] = [
    *[None, True, False, 0, 1, -1, 3, 16, 24, 64, 2**63, 2**70, 1.5, -0.0],
    *["", "a", "\ud83d", "the cat " * 100, "float", "base64", "NONE", "START", "query", "retrieval.query", "nli", "m3"],
    *[[], {}, [[]], ["a"], ["a", "b"], [5, 6], [[5, 6], [7]], [["a"], ["b", "c"]], [None], [{}], [["a", "b"]]],
    *[{"text": "a"}, [{"text": "a"}], ["float", "int8"], ["binary"], ["dense"], ["sparse", "multi_vector"]],
]
"""What any field may be sent as."""


def operation_of(path: str) -> Operation:
    route = path.split("/", 2)[2]
    return next(each for each in dialect_of(path).operations if each.path == f"/{route}")


def fields_of(path: str) -> dict[str, Any]:
    body = operation_of(path).body
    assert body is not None
    return dict(body.model_fields)


def dialect_of(path: str) -> Dialect:
    return next(each for each in DIALECTS if each.name == path.split("/", 2)[1])


def post(kinds: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = kinds.http.post(path, json=body, headers={"x-request-id": "same"})
    return answer.status_code, answer.json()


def test_no_route_of_these_dialects_is_forgotten() -> None:
    names = {path.split("/", 2)[1] for path in BODIES}
    routes = {
        f"/{dialect.name}{operation.path}"
        for dialect in DIALECTS
        for operation in dialect.operations
        if dialect.name in names and operation.body is not None
    }
    assert routes == set(BODIES)


@pytest.mark.parametrize("prefix", ["exact", "bare"])
@pytest.mark.parametrize("path", BODIES)
def test_answers_have_the_described_fields(kinds: RunningServer, path: str, prefix: str) -> None:
    route = path if prefix == "exact" else "/" + path.split("/", 2)[2]
    _, answer = post(kinds, route, BODIES[path])
    offers = PATHS["POST", "/" + path.split("/", 2)[2]]
    chosen = operation_of(path) if prefix == "exact" else choose(offers, BODIES[path]).operation
    assert chosen.answer.model_validate(answer).model_dump(exclude_unset=True) == answer


@pytest.mark.parametrize("path", BODIES)
def test_null_is_absent(kinds: RunningServer, path: str) -> None:
    expected = post(kinds, path, BODIES[path])
    assert expected[0] == 200, expected
    for field in fields_of(path).keys() - BODIES[path].keys():
        assert post(kinds, path, {**BODIES[path], field: None}) == expected, field
    everything = dict.fromkeys(fields_of(path))
    assert post(kinds, path, {**everything, **BODIES[path]}) == expected


@pytest.mark.parametrize("path", BODIES)
def test_unknown_is_ignored(kinds: RunningServer, path: str) -> None:
    assert post(kinds, path, {**BODIES[path], **UNKNOWN}) == post(kinds, path, BODIES[path])


@pytest.mark.parametrize("path", BODIES)
def test_required_is_named(kinds: RunningServer, path: str) -> None:
    for field in BODIES[path]:
        without = {name: value for name, value in BODIES[path].items() if name != field}
        for body in (without, {**without, field: None}):
            status, answer = post(kinds, path, body)
            assert status in (400, 422)
            assert set(answer) == set(dialect_of(path).failure_body.model_fields)
            assert field in str(answer)


@pytest.mark.parametrize("path", BODIES)
def test_wrong_values_are_refused_by_name(kinds: RunningServer, path: str) -> None:
    wrong_status = 422 if path.startswith("/jina") else 400
    for field, info in fields_of(path).items():
        is_refused = any(isinstance(mark, Refused) for mark in info.metadata)
        for value in WRONG[field] if field in WRONG or not is_refused else ["nope", 3, [1]]:
            status, answer = post(kinds, path, {**BODIES[path], field: value})
            assert status == wrong_status, (field, value, answer)
            assert set(answer) == set(dialect_of(path).failure_body.model_fields)
            assert field in str(answer), (field, value, answer)


@pytest.mark.parametrize("path", BODIES)
def test_no_request_is_a_server_error(kinds: RunningServer, path: str) -> None:
    draw = random.Random(path)
    names = [*fields_of(path), "task", "top_k", "truncation", "output_dtype"]
    for number in range(60):
        route = path if number % 2 else "/" + path.split("/", 2)[2]
        body = {**BODIES[path], "model": draw.choice(list(kinds.engines))}
        body |= {name: draw.choice(VALUES) for name in draw.sample(names, draw.randint(1, 3))}
        answer = kinds.http.post(route, content=json.dumps(body))
        assert answer.status_code < 500, body
        if answer.status_code == 200:
            assert "null" not in answer.text, body

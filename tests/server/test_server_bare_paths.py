"""Where several dialects share a bare path the body decides; errors there have what any client looks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from running import RunningServer

from cenote.server.dialects import DIALECTS
from cenote.server.endpoint import choose
from cenote.server.paths import bare_paths, own_paths

PATHS = bare_paths(DIALECTS)
TEXTS = ["the cat", "a dog"]
RERANK = {"model": "reranker", "query": "water", "documents": TEXTS}
EMBED = {"model": "dense", "input": TEXTS}
DECISIONS = [
    ("/v1/embeddings", {}, "openai"),
    ("/v1/embeddings", {"input_type": "query", "dimensions": 16, "encoding_format": "float"}, "openai"),
    ("/v1/embeddings", {"task": None, "output_dtype": None, "late_chunking": None}, "openai"),
    ("/v1/embeddings", {"task": "retrieval.query"}, "jina"),
    ("/v1/embeddings", {"late_chunking": False}, "jina"),
    ("/v1/embeddings", {"embedding_type": ["float"]}, "jina"),
    ("/v1/embeddings", {"encoding_type": "float"}, "jina"),
    ("/v1/embeddings", {"normalized": True}, "jina"),
    ("/v1/embeddings", {"truncation": True, "input_type": None}, "voyage"),
    ("/v1/embeddings", {"output_dtype": "float"}, "voyage"),
    ("/v1/embeddings", {"output_dimension": 16}, "voyage"),
    *[
        decision
        for path in ("/rerank", "/v1/rerank")
        for decision in [
            (path, {}, "cohere"),
            (path, {"top_n": 1, "return_documents": True, "rank_fields": None}, "cohere"),
            (path, {"top_k": None}, "cohere"),
            (path, {"top_k": 1}, "voyage"),
            (path, {"truncation": True}, "voyage"),
        ]
    ],
    ("/v2/rerank", {}, "cohere"),
    ("/embeddings", {}, "openai"),
]


def base(path: str) -> dict[str, Any]:
    return EMBED if "embeddings" in path else RERANK


@pytest.mark.parametrize(("path", "fields", "dialect"), DECISIONS)
def test_the_body_decides(path: str, fields: dict[str, Any], dialect: str) -> None:
    assert choose(PATHS["POST", path], {**base(path), **fields}).dialect.name == dialect


@pytest.mark.parametrize("body", [None, [], 3, "task", {"": 1}])
def test_a_body_that_says_nothing_is_the_first_dialect_s(body: object) -> None:
    assert choose(PATHS["POST", "/v1/embeddings"], body).dialect.name == "openai"
    assert choose(PATHS["POST", "/v1/rerank"], body).dialect.name == "cohere"


@pytest.mark.parametrize(("path", "fields", "dialect"), DECISIONS)
def test_the_answer_has_all_of_the_exact_one(
    kinds: RunningServer, path: str, fields: dict[str, Any], dialect: str
) -> None:
    body = {**base(path), **fields}
    headers = {"x-request-id": "same"}
    bare = kinds.http.post(path, json=body, headers=headers)
    exact_path = path if path.startswith("/v") else f"/v1{path}"
    exact = kinds.http.post(f"/{dialect}{exact_path}", json=body, headers=headers)
    assert (bare.status_code, exact.status_code) == (200, 200), bare.text + exact.text
    assert contains(bare.json(), exact.json())


def test_the_page_has_every_decision() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api" / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `/")]
    for dialect in DIALECTS:
        assert any(f"`/{dialect.name}`" in row[1] for row in rows), dialect.name
    for (_, path), offers in PATHS.items():
        for offer in offers if len(offers) > 1 else ():
            named = {word for row in rows if f"`{path}`" in row[1] for word in re.findall(r"`(\w+)`", row[2])}
            assert offer.operation.marks <= named, path


def test_the_page_s_error_is_as_printed(kinds: RunningServer) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api" / "README.md").read_text(encoding="utf-8")
    (printed,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert kinds.http.post("/rerank", json={"documents": ["a"]}).json() == json.loads(printed)


def contains(whole: Any, part: Any) -> bool:
    """Return whether `part` is in `whole`, which may have more fields in its objects."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(contains(*pair) for pair in zip(whole, part, strict=True))
    if isinstance(part, float):
        return bool(whole == pytest.approx(part, abs=1e-6))
    return bool(whole == part)


BARE_PATHS = [(method, path) for method, path in PATHS if method == "POST"]


@pytest.mark.parametrize(("method", "path"), BARE_PATHS)
@pytest.mark.parametrize(
    ("content", "kind", "statuses"),
    [
        ("{", "application/json", {400, 422}),
        ("[]", "application/json", {400, 422}),
        ("{}", "application/json", {400, 422}),
        ('{"model": "nope", "input": "a", "texts": ["a"], "query": "a", "documents": ["a"], "inputs": [["a"]]}',
         "application/json", {400, 404, 422}),
        ("{}", "text/plain", {400, 415}),
    ],
)  # fmt: skip
def test_errors_suit_any_client(
    kinds: RunningServer, method: str, path: str, content: str, kind: str, statuses: set[int]
) -> None:
    answer = kinds.http.request(method, path, content=content, headers={"content-type": kind})
    assert answer.status_code in statuses
    body = answer.json()
    assert {"error", "message", "detail"} <= set(body)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] == body["message"]
    assert body["detail"].endswith(body["message"])


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", "/v1", "/"])
def test_unknown_paths_suit_any_client(kinds: RunningServer, path: str) -> None:
    answer = kinds.http.post(path, json={})
    assert answer.status_code == 404
    assert set(answer.json()) == {"error", "message", "detail"}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_unknown_paths_and_methods_under_a_prefix_are_the_dialect_s_own(kinds: RunningServer, dialect: Any) -> None:
    fields = set(dialect.failure_body.model_fields)
    answer = kinds.http.get(f"/{dialect.name}/nope")
    assert (answer.status_code, set(answer.json())) == (404, fields)
    for (_, path), offers in own_paths(dialect).items():
        answer = kinds.http.request("PUT", f"/{dialect.name}{path}".replace("{model:path}", "dense"))
        assert answer.status_code == 405
        assert set(answer.json()) == set(offers[0].dialect.failure_body.model_fields)


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/v1/embeddings", {"dimensions": 0}, 400),
        ("/v1/embeddings", {"dimensions": 0, "late_chunking": False}, 422),
        ("/v1/embeddings", {"model": "nope", "task": "separation"}, 400),
        ("/v1/embeddings", {"model": "nope"}, 404),
        ("/v1/rerank", {"top_n": 0}, 400),
        ("/rerank", {"query": "a", "documents": None, "texts": [1]}, 422),
    ],
)
def test_the_status_is_that_of_the_dialect_that_is_meant(
    kinds: RunningServer, path: str, fields: dict[str, Any], status: int
) -> None:
    assert kinds.http.post(path, json={**base(path), **fields}).status_code == status


def test_a_request_counts_under_the_path_of_its_operation(kinds: RunningServer) -> None:
    labels = {"model": "reranker", "route": "/v1/rerank"}
    before = kinds.metric("cenote_requests_total", **labels)
    for path in ("/rerank", "/v1/rerank", "/cohere/v1/rerank"):
        kinds.http.post(path, json=RERANK)
    assert kinds.metric("cenote_requests_total", **labels) == before + 3

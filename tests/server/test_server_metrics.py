"""Metrics of the models' load, the time headers of every answer, and labels that no client can add to."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import RunningServer, run_server
from test_server_fields import BODIES, RERANK, TEXTS

from cenote.engine import AsyncEngine
from cenote.server.dialects import DIALECTS
from cenote.server.record import HEADERS

COMPUTING: dict[str, dict[str, Any]] = {
    **BODIES,
    "/vllm/pooling": {"model": "dense", "input": TEXTS},
    "/vllm/classify": {"model": "nli", "input": TEXTS},
    "/vllm/score": {"model": "dense", "queries": "water", "documents": TEXTS},
    "/vllm/v1/score": {"model": "dense", "queries": "water", "documents": TEXTS},
    "/vllm/rerank": RERANK,
    "/vllm/v1/rerank": RERANK,
    "/vllm/v2/rerank": RERANK,
    "/vllm/v1/embeddings": {"model": "dense", "input": TEXTS},
    "/vllm/v2/embed": {"model": "dense", "texts": TEXTS},
    "/tei/": {"model": "dense", "inputs": TEXTS},
    "/tei/embed": {"model": "dense", "inputs": TEXTS},
    "/tei/embed_all": {"model": "dense", "inputs": TEXTS},
    "/tei/embed_sparse": {"model": "m3", "inputs": TEXTS},
    "/tei/similarity": {"model": "dense", "inputs": {"source_sentence": "water", "sentences": TEXTS}},
    "/tei/predict": {"model": "nli", "inputs": "the cat"},
    "/tei/rerank": {"model": "reranker", "query": "water", "texts": TEXTS},
    "/tei/v1/embeddings": {"model": "dense", "input": TEXTS},
    "/tei/embeddings": {"model": "dense", "input": TEXTS},
}
TOKENIZING = {"/tei/tokenize", "/tei/decode", "/vllm/tokenize", "/vllm/detokenize"}


@pytest.fixture
def own(folders: dict[str, Path]) -> Iterator[RunningServer]:
    """A server whose model has run nothing but its warm-up."""
    engine = AsyncEngine(folders["tiny"], threads=1)
    with run_server({"tiny": engine}) as running:
        yield running
    engine.close()


def samples(server: RunningServer) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("cenote_")
    }


def test_no_route_is_forgotten() -> None:
    routes = {
        f"/{dialect.name}{operation.path}"
        for dialect in DIALECTS
        for operation in dialect.operations
        if operation.body is not None
    }
    assert routes == {*COMPUTING, *TOKENIZING}


@pytest.mark.parametrize("path", COMPUTING)
def test_every_computing_route_says_what_it_cost(kinds: RunningServer, path: str) -> None:
    start = time.monotonic()
    answer = kinds.http.post(path, json=COMPUTING[path])
    elapsed = (time.monotonic() - start) * 1000
    assert answer.status_code == 200, answer.text
    assert set(HEADERS) <= set(answer.headers)
    assert int(answer.headers["x-cenote-tokens"]) > 3
    assert answer.headers["x-cenote-truncated"] == "0"
    queue, inference = (float(answer.headers[f"x-cenote-{name}-ms"]) for name in ("queue", "inference"))
    assert queue > 0
    assert inference > 0
    assert queue + inference < elapsed


def test_an_answer_without_work_has_no_cost(server: RunningServer) -> None:
    for answer in (server.http.get("/v1/models"), server.http.post("/v1/embeddings", json={})):
        assert set(HEADERS) & set(answer.headers) == {"x-request-id"}


class TestLoad:
    def test_steps_and_their_fill_are_counted(self, own: RunningServer) -> None:
        before = own.engines["tiny"].load
        own.http.post("/v1/embeddings", json={"input": ["the cat", "a dog"]})
        now = samples(own)
        model = ("model", "tiny")
        assert now["cenote_steps_total", (model,)] == before.num_steps + 1
        for name in ("step_seconds", "step_fill"):
            count = now[f"cenote_{name}_count", (model,)]
            assert count == before.num_steps + 1
            buckets = [
                value
                for (sample, labels), value in now.items()
                if sample == f"cenote_{name}_bucket" and model in labels
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == count
        load = own.engines["tiny"].load
        assert now["cenote_step_fill_sum", (model,)] == pytest.approx(load.step_fill.total)
        assert now["cenote_step_seconds_sum", (model,)] == pytest.approx(load.step_seconds.total)

    def test_nothing_waits_when_all_is_answered(self, own: RunningServer) -> None:
        own.http.post("/v1/embeddings", json={"input": ["the cat", "a dog"] * 100})
        for name in ("queued_requests", "queued_tokens", "unanswered_requests"):
            assert own.metric(f"cenote_{name}", model="tiny") == 0
        assert own.metric("cenote_step_tokens", model="tiny") > 0

    def test_times_of_requests_are_those_of_their_answers(self, own: RunningServer) -> None:
        answers = [own.http.post("/v1/embeddings", json={"input": ["the cat"]}) for _ in range(3)]
        labels = {"model": "tiny", "route": "/v1/embeddings"}
        for name in ("queue", "inference"):
            total = sum(float(answer.headers[f"x-cenote-{name}-ms"]) for answer in answers)
            assert own.metric(f"cenote_{name}_seconds_count", **labels) == 3
            assert own.metric(f"cenote_{name}_seconds_sum", **labels) * 1000 == pytest.approx(total, abs=0.01)


def test_clients_cannot_add_series(own: RunningServer) -> None:
    body = {"input": "the cat"}

    def visit(mark: str) -> None:
        own.http.get(f"/made-up/{mark}")
        own.http.get(f"/v1/models/made-up-{mark}")
        own.http.get(f"/openai/v1/models/made-up-{mark}?x={mark}")
        own.http.post("/v1/embeddings", json={**body, "model": f"made-up-{mark}"})
        own.http.post("/v1/embeddings", json=body, headers={"x-request-id": f"made-up-{mark}"})
        own.http.request(f"MADEUP{mark}", "/v1/embeddings")
        own.http.request(f"MADEUP{mark}", "/health")

    visit("a")
    samples(own)  # asking makes a series of its own
    first = samples(own)
    for number in range(10):
        visit(f"b{number}")
    second = samples(own)
    assert set(second) == set(first)
    assert not re.search("made-?up", own.http.get("/metrics").text, re.IGNORECASE)


def test_metrics_are_readable_while_a_model_is_closed(own: RunningServer) -> None:
    own.engines["tiny"].close()
    assert httpx.get(f"{own.url}/metrics").status_code == 200


def test_the_documents_name_every_metric_and_header(server: RunningServer) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operation.md").read_text(encoding="utf-8")
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    ours = {name for name in names if name.startswith("cenote_") and not name.endswith("_created")}
    assert {name for name in ours if f"`{name}`" not in page} == set()
    assert {name for name in HEADERS if f"| `{name}` |" not in page} == set()
    assert set(re.findall(r"`(cenote_\w+)`", page)) <= ours

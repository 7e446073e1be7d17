"""Health, metrics, request ids and the description of the API."""

from __future__ import annotations

import re

import pytest
from running import RunningServer

from cenote.server.dialects import DIALECTS

BODY = {"model": "tiny", "input": ["the cat", "a dog"]}


def test_health_is_cheap_and_calls_no_model(server: RunningServer) -> None:
    before = server.metric("cenote_texts_total")
    answer = server.http.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert server.metric("cenote_texts_total") == before


class TestMetrics:
    def test_a_request_is_counted_once(self, server: RunningServer) -> None:
        labels = {"model": "tiny", "route": "/v1/embeddings"}
        names = {
            "cenote_requests_total": 1,
            "cenote_request_seconds_count": 1,
            "cenote_texts_total": 3,
            "cenote_truncated_texts_total": 1,
        }
        before = {name: server.metric(name, **labels) for name in [*names, "cenote_tokens_total"]}
        answer = server.http.post("/v1/embeddings", json={"model": "tiny", "input": ["the cat", "", "a " * 100]})
        after = {name: server.metric(name, **labels) for name in before}
        grown = {name: after[name] - before[name] for name in before}
        assert grown.pop("cenote_tokens_total") == answer.json()["usage"]["total_tokens"]
        assert grown == names

    def test_statuses_are_told_apart(self, server: RunningServer) -> None:
        before = server.metric("cenote_requests_total", status="400", model="tiny")
        server.http.post("/v1/embeddings", json={"model": "tiny", "input": []})
        assert server.metric("cenote_requests_total", status="400", model="tiny") == before + 1

    def test_clients_cannot_make_labels(self, server: RunningServer) -> None:
        for number in range(5):
            server.http.get(f"/made-up/{number}")
            server.http.get(f"/v1/models/made-up-{number}")
            server.http.post("/v1/embeddings", json={"model": f"made-up-{number}", "input": "a"})
        assert "made-up" not in server.http.get("/metrics").text

    def test_is_prometheus_text(self, server: RunningServer) -> None:
        answer = server.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert "# TYPE cenote_request_seconds histogram" in answer.text


class TestRequestId:
    @pytest.mark.parametrize("given", ["a", "req-1/2:3", "x" * 128])
    def test_is_echoed(self, server: RunningServer, given: str) -> None:
        assert server.http.get("/health", headers={"x-request-id": given}).headers["x-request-id"] == given

    @pytest.mark.parametrize("given", ["", "x" * 129, "a b", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
    def test_is_replaced_where_it_is_no_good(self, server: RunningServer, given: str) -> None:
        answer = server.http.get("/nope", headers={"x-request-id": given.encode("latin-1")})
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])

    def test_openai_client_sees_it(self, server: RunningServer) -> None:
        answer = server.client.embeddings.with_raw_response.create(
            model="tiny", input="a", extra_headers={"x-request-id": "mine"}
        )
        assert answer.headers["x-request-id"] == "mine"


def test_answers_say_tokens_and_truncations(server: RunningServer) -> None:
    answer = server.http.post("/v1/embeddings", json=BODY)
    assert answer.headers["x-cenote-tokens"] == str(answer.json()["usage"]["total_tokens"])
    assert answer.headers["x-cenote-truncated"] == "0"


class TestDescription:
    def test_every_operation_is_described(self, server: RunningServer) -> None:
        description = server.http.get("/openapi.json").json()
        for dialect in DIALECTS:
            for operation in dialect.operations:
                path = re.sub(r":\w+}", "}", operation.path)
                own = f"/{dialect.name}{path}"
                for place in [own] if operation.is_own else [path, own]:
                    described = description["paths"][place][operation.method.lower()]
                    assert ("requestBody" in described) == (operation.body is not None)
                    assert ("content" in described["responses"]["200"]) == (operation.answer is not None)

    def test_bytes_are_described_where_a_body_may_ask_for_them(self, server: RunningServer) -> None:
        paths = server.http.get("/openapi.json").json()["paths"]
        for path in ("/pooling", "/vllm/pooling"):
            content = paths[path]["post"]["responses"]["200"]["content"]
            assert set(content) == {"application/json", "application/octet-stream"}

    def test_references_lead_somewhere(self, server: RunningServer) -> None:
        answer = server.http.get("/openapi.json")
        references = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
        assert references
        assert references <= set(answer.json()["components"]["schemas"])

    def test_fields_are_those_of_the_request(self, server: RunningServer) -> None:
        schemas = server.http.get("/openapi.json").json()["components"]["schemas"]
        request = schemas["EmbeddingsRequest"]
        assert request["required"] == ["input"]
        assert {"model", "encoding_format", "dimensions", "user"} <= set(request["properties"])

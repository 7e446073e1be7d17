"""BL-21: real clients and proxies send null and fields of other APIs; every error is OpenAI's own body."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from running import RunningServer

BODY = {"model": "tiny", "input": "the cat"}
OPTIONAL = {
    "encoding_format": ["base32", "", 3, ["float"], True],
    "dimensions": ["64", 1.5, [64], {}, False],
    "user": [3, ["a"], {}, True],
    "input_type": ["image", "", 3, ["query"], True],
    "prompt_name": [3, ["query"], True],
    "normalize": ["yes", 1, [True]],
    "truncate": ["MAYBE", "", 2, [True]],
}
UNKNOWN = {
    "metadata": {"a": 1},
    "proxy_server_request": {"headers": {}},
    "truncate_prompt_tokens": -1,
    "add_special_tokens": True,
    "tasks": "retrieval.query",
    "priority": 0,
    "messages": None,
    "": "",
    "input_types": "query",
}


def post(server: RunningServer, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = server.http.post("/v1/embeddings", json=body)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("field", OPTIONAL)
def test_null_is_absent(server: RunningServer, field: str) -> None:
    assert post(server, {**BODY, field: None}) == post(server, BODY)


@pytest.mark.parametrize("field", UNKNOWN)
def test_unknown_is_ignored(server: RunningServer, field: str) -> None:
    assert post(server, {**BODY, field: UNKNOWN[field]}) == post(server, BODY)


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in OPTIONAL.items() for value in values])
def test_wrong_type_is_refused_by_name(server: RunningServer, field: str, value: object) -> None:
    status, body = post(server, {**BODY, field: value})
    assert status == 400
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["param"] == field
    assert field in body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("model", [None, 3, ["tiny"]])
def test_model_is_required_where_there_are_two(server: RunningServer, model: object) -> None:
    status, body = post(server, {"input": "a", "model": model})
    assert (status, body["error"]["param"]) == (400, "model")


def test_input_is_required(server: RunningServer) -> None:
    status, body = post(server, {"model": "tiny"})
    assert (status, body["error"]["param"]) == (400, "input")
    assert body["error"]["message"] == "`input` is required"


@pytest.mark.parametrize(
    "body", [b"[]", b"3", b'"text"', b"null", b"", b"{", b"{'a': 1}", b'{"input": NaN}', b"\xef\xbb\xbf{}"]
)
def test_body_that_is_no_json_object(server: RunningServer, body: bytes) -> None:
    answer = server.http.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_wrong_content_type(server: RunningServer, kind: str) -> None:
    answer = server.http.post("/v1/embeddings", content=b'{"input": "a"}', headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.a+json"])
def test_right_content_type(server: RunningServer, kind: str) -> None:
    body = b'{"model": "tiny", "input": "a"}'
    assert server.http.post("/v1/embeddings", content=body, headers={"content-type": kind}).status_code == 200


def test_compressed_body_is_refused(server: RunningServer) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert server.http.post("/v1/embeddings", content=b"\x1f\x8b", headers=headers).status_code == 415


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embedding", "/v1/embeddings/", "/openai/nope", "/V1/embeddings"])
def test_unknown_route(server: RunningServer, path: str) -> None:
    answer = server.http.post(path, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert path in answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/embeddings"), ("DELETE", "/v1/models"), ("PUT", "/health")])
def test_wrong_method(server: RunningServer, method: str, path: str) -> None:
    answer = server.http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"]


def test_client_raises_its_own_exceptions(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError, match="`encoding_format` should be 'float', 'base64'"):
        server.client.embeddings.create(model="tiny", input="a", encoding_format="hex")  # type: ignore[call-overload]
    with pytest.raises(openai.NotFoundError, match="tiny"):
        server.client.embeddings.create(model="text-embedding-3-small", input="a")

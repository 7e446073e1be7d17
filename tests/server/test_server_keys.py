"""Who is let in: API keys on every route, health for everybody, browsers from origins that are named."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from running import RunningServer, run_server
from starlette.routing import Mount, Route

from cenote.config import EngineOptions, ServerOptions, from_keywords
from cenote.errors import OptionError
from cenote.server.app import create_app
from cenote.server.dialects import DIALECTS
from cenote.server.keys import read_keys
from cenote.server.observe import PROBES

FIRST, SECOND = "first-key-0123456789", "second-key-9876543210"
ORIGIN = "https://app.example.com"
BODY = {"model": "tiny", "input": "the cat"}


@pytest.fixture(scope="module")
def locked(server: RunningServer) -> Iterator[RunningServer]:
    """A server that wants a key, for pages of one origin."""
    options = ServerOptions(port=0, api_key=(FIRST, SECOND), cors_origin=(ORIGIN,))
    with run_server(server.engines, options) as running:
        yield running


def every_path(server: RunningServer) -> list[tuple[str, str]]:
    """Return every method and path of the application."""
    found = []
    for route in create_app(server.engines, ServerOptions()).routes:
        routes = route.routes if isinstance(route, Mount) else [route]
        prefix = route.path if isinstance(route, Mount) else ""
        for each in routes:
            assert isinstance(each, Route)
            path = prefix + each.path.replace("{model:path}", "tiny")
            found += [(method, path) for method in sorted(each.methods or ()) if method != "HEAD"]
    return found


def post(server: RunningServer, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.http.post("/v1/embeddings", json=BODY, headers=named)


class TestKeys:
    @pytest.mark.parametrize("key", [FIRST, SECOND])
    def test_each_key_opens(self, locked: RunningServer, key: str) -> None:
        for headers in (
            {"authorization": f"Bearer {key}"},
            {"authorization": f"bearer  {key}"},
            {"authorization": key},
            {"x_api_key": key},
            {"api_key": key},
            {"authorization": "Basic of-a-proxy", "x_api_key": key},
        ):
            assert post(locked, **headers).status_code == 200, headers

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Bearer {FIRST}x"},
            {"authorization": f"Bearer {FIRST[:-1]}"},
            {"authorization": f"Basic {FIRST}"},
            {"authorization": f"Bearer {FIRST},{SECOND}"},
            {"authorization": "Bearer"},
            {"authorization": ""},
            {"x_api_key": FIRST.upper()},
            {"cookie": f"key={FIRST}"},
        ],
    )
    def test_anything_else_does_not(self, locked: RunningServer, headers: dict[str, str]) -> None:
        answer = post(locked, **headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="cenote"'
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert FIRST not in answer.text

    def test_not_in_the_query(self, locked: RunningServer) -> None:
        assert locked.http.post(f"/v1/embeddings?api_key={FIRST}&key={FIRST}", json=BODY).status_code == 401

    def test_every_route_but_the_probes_is_locked(self, locked: RunningServer) -> None:
        free = {path for _, path in every_path(locked) if locked.http.get(path).status_code != 401}
        assert set(PROBES) <= free
        assert {path[path.rindex("/") :] for path in free} == set(PROBES)
        for method, path in every_path(locked):
            if path not in free:
                assert locked.http.request(method, path, json={}).status_code == 401, path

    def test_unknown_routes_are_locked_too(self, locked: RunningServer) -> None:
        assert locked.http.get("/nope").status_code == 401
        assert locked.http.get("/health/../v1/models").status_code == 401
        assert locked.http.get("/health/").status_code == 401

    @pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
    def test_refused_in_the_words_of_the_dialect(self, locked: RunningServer, dialect: object) -> None:
        for operation in dialect.operations:  # type: ignore[attr-defined]
            if operation.body is None:
                continue
            answer = locked.http.post(f"/{dialect.name}{operation.path}", json={})  # type: ignore[attr-defined]
            schema = dialect.for_operation(operation).failure_body  # type: ignore[attr-defined]
            assert answer.status_code == 401
            assert schema.model_validate(answer.json()).model_dump(exclude_unset=True) == answer.json()

    def test_openai_client(self, locked: RunningServer) -> None:
        with pytest.raises(openai.AuthenticationError, match="not one of this server's"):
            locked.client.models.list()
        assert locked.client.with_options(api_key=SECOND).models.list().data[0].id == "tiny"

    def test_keys_are_never_logged_or_shown(self, locked: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        post(locked, authorization=f"Bearer {FIRST}")
        post(locked, authorization=f"Bearer {FIRST}x")
        assert FIRST not in caplog.text
        assert FIRST not in repr(ServerOptions(api_key=(FIRST,)))

    @pytest.mark.parametrize("is_free", [True, False])
    def test_metrics_are_locked_unless_the_operator_opens_them(self, server: RunningServer, is_free: bool) -> None:
        options = ServerOptions(port=0, api_key=(FIRST,), metrics_without_key=is_free)
        with run_server(server.engines, options) as own:
            assert own.http.get("/metrics").status_code == (200 if is_free else 401)
            assert own.http.get("/metrics", headers={"x-api-key": FIRST}).status_code == 200
            assert own.http.get("/openapi.json").status_code == 401

    def test_a_refused_request_is_counted(self, locked: RunningServer) -> None:
        key = {"x-api-key": FIRST}
        before = locked.http.get("/metrics", headers=key).text.count('status="401"')
        assert before
        answer = post(locked)
        assert answer.headers["x-request-id"]


class TestWhereKeysComeFrom:
    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "keys").write_text(f"# ours\n{FIRST}\n\n  {SECOND}  \n")
        file = str(tmp_path / "keys")
        assert read_keys(ServerOptions(api_key_file=file)) == (FIRST, SECOND)
        assert read_keys(ServerOptions(api_key=("other",), api_key_file=file)) == ("other", FIRST, SECOND)

    def test_a_file_opens_nothing_by_mistake(self, tmp_path: Path) -> None:
        (tmp_path / "empty").write_text("# none\n")
        for name in ("empty", "missing"):
            with pytest.raises(OptionError, match=name):
                read_keys(ServerOptions(api_key_file=str(tmp_path / name)))

    def test_environment(self) -> None:
        environ = {"CENOTE_API_KEY": f"{FIRST}, {SECOND},"}
        assert from_keywords(ServerOptions, {}, environ).api_key == (FIRST, SECOND)
        assert from_keywords(EngineOptions, {}, environ) == EngineOptions()

    @pytest.mark.parametrize("key", ["", "with space", "umlaut-\u00e4", "line\n"])
    def test_a_bad_key_is_not_shown(self, key: str) -> None:
        with pytest.raises(OptionError, match="api_key number 2") as error:
            ServerOptions(api_key=(FIRST, key))
        assert "umlaut" not in str(error.value)

    def test_an_empty_variable_is_refused_not_taken_for_no_key(self) -> None:
        with pytest.raises(OptionError, match="api_key number 1"):
            from_keywords(ServerOptions, {}, {"CENOTE_API_KEY": ""})


class TestBrowsers:
    def test_preflight_needs_no_key_and_allows_it(self, locked: RunningServer) -> None:
        """BL-37."""
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        answer = locked.http.options("/v1/embeddings", headers={"origin": ORIGIN, **asked})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert (
            locked.http.options("/v1/embeddings", headers={"origin": "https://evil.example", **asked}).status_code
            == 400
        )

    def test_answers_and_refusals_can_be_read(self, locked: RunningServer) -> None:
        for headers in ({"x-api-key": FIRST}, {}):
            answer = locked.http.post("/v1/embeddings", json=BODY, headers={"origin": ORIGIN, **headers})
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert "x-cenote-tokens" in answer.headers["access-control-expose-headers"]
            assert answer.headers["x-request-id"]

    def test_other_origins_cannot(self, locked: RunningServer, server: RunningServer) -> None:
        headers = {"origin": "https://evil.example", "x-api-key": FIRST}
        for each in (locked, server):
            answer = each.http.post("/v1/embeddings", json=BODY, headers=headers)
            assert "access-control-allow-origin" not in answer.headers

    def test_every_origin(self, server: RunningServer) -> None:
        with run_server(server.engines, ServerOptions(port=0, cors_origin=("*",))) as own:
            answer = own.http.get("/v1/models", headers={"origin": ORIGIN})
            assert answer.headers["access-control-allow-origin"] == "*"

    @pytest.mark.parametrize("origin", ["example.com", "https://example.com/", "https://a b", "", "https://"])
    def test_an_origin_that_never_matches_is_refused(self, origin: str) -> None:
        with pytest.raises(OptionError, match="cors_origin"):
            ServerOptions(cors_origin=(origin,))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_compressed_bodies_are_refused_unread(server: RunningServer, encoding: str) -> None:
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    answer = server.http.post("/v1/embeddings", content=b"\x1f\x8b\x08\x00 no gzip at all", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert "uncompressed" in answer.json()["error"]["message"]

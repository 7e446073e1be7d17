"""What the log says about requests, and that it never says what was in them, whatever goes wrong."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from running import TIMEOUT_SECONDS, RunningServer, run_server

from cenote.config import ServerOptions
from cenote.engine import AsyncEngine
from cenote.errors import EngineError, OptionError
from cenote.server.logs import JsonLines, TextLines, described

SECRET = "zugangswort"
"""A text that no log line may hold."""
KEY = "key-0123456789"
BODY = {"model": "tiny", "input": ["the cat", "a dog"]}


class Log:
    """What a handler of the root logger wrote, at the lowest level."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        self.handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))  # the test's client

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def objects(self, logger: str = "cenote.access") -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.text.splitlines()) if line["logger"] == logger]


@pytest.fixture(params=[JsonLines, TextLines], ids=["json", "text"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    log = Log(request.param())
    root = logging.getLogger()
    level = root.level
    root.addHandler(log.handler)
    root.setLevel(logging.DEBUG)
    yield log
    root.removeHandler(log.handler)
    root.setLevel(level)


@pytest.fixture
def engine(folders: dict[str, Path]) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(folders["tiny"], threads=1)
    yield engine
    engine.close()


def settle(server: RunningServer) -> None:
    """Wait for the lines so far: one is written after its answer was sent, but before the next request is read."""
    server.http.get("/health")


@pytest.mark.parametrize("log", [JsonLines], indirect=True)
def test_a_request_is_one_line(server: RunningServer, log: Log) -> None:
    answer = server.http.post("/openai/v1/embeddings", json=BODY, headers={"x-request-id": "mine"})
    server.http.post("/v1/embeddings", json={"model": "nope", "input": "a"})
    server.http.get("/nope")
    settle(server)
    first, second, third = (line for line in log.objects() if line["level"] == "INFO")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert 0 < first["queue_seconds"] + first["inference_seconds"] < first["seconds"]
    for name, value in {
        "message": "request",
        "method": "POST",
        "route": "/v1/embeddings",
        "status": 200,
        "request_id": "mine",
        "model": "tiny",
        "texts": 2,
        "tokens": int(answer.headers["x-cenote-tokens"]),
        "truncated": 0,
    }.items():
        assert first[name] == value, name
    assert (second["status"], second["model"], "tokens" in second) == (404, "", False)
    assert (third["status"], third["route"]) == (404, "")


@pytest.mark.parametrize("log", [TextLines], indirect=True)
def test_the_line_for_people(server: RunningServer, log: Log) -> None:
    server.http.post("/v1/embeddings", json=BODY, headers={"x-request-id": "mine"})
    settle(server)
    (line,) = (line for line in log.text.splitlines() if "INFO cenote.access" in line)
    assert " INFO cenote.access: request method=POST route=/v1/embeddings status=200 request_id=mine model=tiny" in line


@pytest.mark.parametrize("log", [JsonLines], indirect=True)
def test_probes_are_for_those_who_look_for_them(server: RunningServer, log: Log) -> None:
    for path in ("/health", "/ready", "/ping", "/metrics"):
        server.http.get(path)
    settle(server)
    assert [line["level"] for line in log.objects()][:4] == ["DEBUG"] * 4


class TestNoTextIsLogged:
    def test_in_what_clients_send(self, server: RunningServer, log: Log) -> None:
        with run_server(server.engines, ServerOptions(port=0, api_key=(KEY,), max_body_bytes=1000)) as own:
            http, key = own.http, {"authorization": f"Bearer {KEY}"}
            http.headers.update(key)
            for body in (
                {"model": "tiny", "input": SECRET},
                {"model": "tiny", "input": [SECRET, None]},
                {"model": SECRET, "input": SECRET},
                {"model": "tiny", "input": SECRET, "encoding_format": SECRET},
                {"model": "tiny", "input": SECRET, "input_type": SECRET, "prompt_name": SECRET},
                {SECRET: SECRET},
                {"model": "tiny", "input": SECRET * 1000},
            ):
                http.post("/v1/embeddings", json=body)
            http.post("/v1/embeddings", content=f'{{"input": "{SECRET}'.encode())
            http.post("/v1/embeddings", content=f'"{SECRET}"'.encode())
            http.post("/v1/embeddings", content=SECRET, headers={"content-type": f"text/{SECRET}"})
            http.get(f"/{SECRET}?text={SECRET}")
            http.get(f"/v1/models/{SECRET}")
            http.request(SECRET.upper(), "/v1/embeddings")
            http.post("/v1/embeddings", json=BODY, headers={"x-request-id": f"{SECRET} two words"})
            http.post("/v1/embeddings", json=BODY, headers={"authorization": f"Bearer {KEY}{SECRET}"})
            host, port = own.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as raw:
                raw.sendall(f"{SECRET} {SECRET}\r\n\r\n".encode())
                raw.recv(1000)
        assert "cenote.access" in log.text
        assert SECRET not in log.text.lower()
        assert KEY not in log.text

    def test_in_errors_of_the_text_layer(self, engine: AsyncEngine, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            try:
                {}[SECRET]
            except KeyError as error:
                raise ValueError(f"cannot read {SECRET}") from error

        monkeypatch.setattr(type(engine._core.encoder), "encode", fail)
        with run_server({"tiny": engine}) as own:
            answer = own.http.post("/v1/embeddings", json={"input": SECRET})
        assert (answer.status_code, SECRET in answer.text) == (500, False)
        assert "KeyError" in log.text
        assert "ValueError" in log.text
        assert "test_server_logs.py" in log.text
        assert SECRET not in log.text

    @pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
    def test_in_errors_of_a_step(self, engine: AsyncEngine, log: Log, kind: type[BaseException]) -> None:
        def fail(_: object) -> None:
            raise kind(f"cannot read {SECRET}")

        object.__setattr__(engine._core.lane.runner.model, "backbone", fail)
        with run_server({"tiny": engine}) as own:
            assert own.http.post("/v1/embeddings", json={"input": SECRET}).status_code in (500, 503)
            own.http.post("/v1/embeddings", json={"input": SECRET})
        assert kind.__name__ in log.text
        assert log.text.count("the engine's loop died") == (kind is SystemExit)
        assert SECRET not in log.text

    def test_in_errors_that_nobody_took(self, log: Log) -> None:
        async def fail() -> None:
            raise ValueError(SECRET)

        async def forget() -> None:
            task = asyncio.create_task(fail())
            await asyncio.sleep(0)
            del task

        asyncio.run(forget())
        assert "Task exception was never retrieved" in log.text
        assert SECRET not in log.text


def test_the_message_of_a_failed_computation_is_there(engine: AsyncEngine, log: Log) -> None:
    """What the model's code raises is about shapes and devices; it never sees a text."""

    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, _: object) -> torch.Tensor:
            return self.linear(torch.ones(2, 5))  # type: ignore[no-any-return]

    object.__setattr__(engine._core.lane.runner.model, "backbone", Narrow())
    with run_server({"tiny": engine}) as own:
        answer = own.http.post("/v1/embeddings", json={"input": "a"}, headers={"x-request-id": "at-fault"})
    assert answer.status_code == 500
    assert "request at-fault failed" in log.text
    assert "mat1 and mat2 shapes cannot be multiplied (2x5 and 3x3)" in log.text


def test_our_own_words_are_there_and_the_same_error_once() -> None:
    error = EngineError("of our own")
    error.__context__ = error
    assert list(described((EngineError, error, None))) == ["EngineError: of our own"]
    assert list(described(None)) == []


def test_a_line_is_a_line(log: Log) -> None:
    logging.getLogger("cenote.somewhere").warning("two\nlines\r\n%s", "and more")
    (line,) = (line for line in log.text.splitlines() if "cenote.somewhere" in line)
    assert "and more" in line


@pytest.mark.parametrize("options", [{"log_format": "xml"}, {"log_level": "loud"}])
def test_unknown_forms_and_levels_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="is not one of"):
        ServerOptions(**options)  # type: ignore[arg-type]

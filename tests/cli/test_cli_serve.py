"""`cenote serve` as a process: ready line, curl line, used port, signals."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cenote.cli import run
from conftest import TIMEOUT_SECONDS


@pytest.fixture
def served(environment: dict[str, str], model: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port and what it printed when it was ready."""
    command = [sys.executable, "-m", "cenote", "serve", str(model), "--port", "0"]
    pipe = subprocess.PIPE
    # Where the tests run in the background SIGINT may be ignored, and a child would take that over.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        killer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        killer.start()
        assert process.stdout is not None
        printed = "".join(process.stdout.readline() for _ in range(3))
        yield process, printed
        killer.cancel()
        process.kill()
    signal.signal(signal.SIGINT, before)


def errors_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    errors = process.stderr.read()
    assert "Traceback" not in errors
    return errors


def test_curl_line_works_and_sigterm_finishes_what_runs(served: tuple[subprocess.Popen[str], str]) -> None:
    process, printed = served
    assert printed.startswith("Cenote serves tiny on http://127.0.0.1:")
    url = printed.splitlines()[0].split()[-1]
    (curl,) = (line for line in printed.splitlines() if "curl" in line)
    arguments = shlex.split(curl)
    assert arguments[:3] == ["curl", "-s", f"{url}/v1/embeddings"]
    headers = dict([arguments[arguments.index("-H") + 1].split(": ")])
    answer = httpx.post(arguments[2], headers=headers, content=arguments[arguments.index("-d") + 1])
    assert len(answer.json()["data"][0]["embedding"]) == 64

    answers: list[httpx.Response] = []

    def post_many() -> None:
        body = {"input": [f"the cat and {number} " * 10 for number in range(2000)]}
        answers.append(httpx.post(f"{url}/v1/embeddings", json=body, timeout=60))

    with httpx.Client(base_url=url) as idle:  # an idle connection does not keep it from ending
        assert idle.get("/health").status_code == 200
        thread = threading.Thread(target=post_many)
        thread.start()
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert process.wait(30) == 0
    assert answers[0].status_code == 200
    assert len(answers[0].json()["data"]) == 2000
    errors_of(process)


def test_sigterm_while_the_model_is_loaded_ends_it_at_once(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    socket_file = tmp_path / "socket"
    command = [sys.executable, "-m", "cenote", "serve", str(model), "--uds", str(socket_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not socket_file.exists() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_interrupt_ends_with_130(served: tuple[subprocess.Popen[str], str]) -> None:
    process, _ = served
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert errors_of(process).rstrip().endswith("cenote: error: interrupted")


def test_used_port_is_known_before_the_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        assert run(["serve", "/no/such/folder", "--port", port]) == 1
    errors = capsys.readouterr().err
    assert port in errors
    assert "--port" in errors
    assert "/no/such/folder" not in errors


def test_model_that_does_not_start_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert run(["serve", str(tmp_path), "--port", "0"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert [line.startswith("cenote: error: ") for line in errors] == [True]


class TestKeys:
    def test_several_keys_come_from_flags_and_the_variable(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run(["serve", "x", "--api-key", "good", "--api-key", "not good"]) == 1
        assert "api_key number 2" in capsys.readouterr().err
        monkeypatch.setenv("CENOTE_API_KEY", "good,fine,not good")
        assert run(["serve", "x"]) == 1
        assert "api_key number 3" in capsys.readouterr().err
        assert run(["serve", "x", "--api-key", "good", "--host", "no.such.host.invalid"]) == 1
        assert "no.such.host" in capsys.readouterr().err

    def test_an_empty_variable_does_not_open_the_server(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CENOTE_API_KEY", "")
        assert run(["serve", "x", "--port", "0"]) == 1
        assert "api_key number 1" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("host", "flags", "warns"), [("0.0.0.0", [], True), ("0.0.0.0", ["--api-key", "k"], False), ("::1", [], False)]
    )
    def test_a_public_address_without_a_key_is_warned_about(
        self, caplog: pytest.LogCaptureFixture, host: str, flags: list[str], warns: bool
    ) -> None:
        assert run(["serve", "/no/such/folder", "--host", host, "--port", "0", *flags]) == 1
        assert ("asks for no key" in caplog.text) == warns

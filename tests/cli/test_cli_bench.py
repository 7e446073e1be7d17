"""`cenote bench` as a process, against a real server with a tiny model, and against none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import TIMEOUT_SECONDS, Cenote

KEY = "a-key"
SHORT = ("--corpus", "short", "--seconds", "0.5")


@pytest.fixture(scope="module")
def url(environment: dict[str, str], model: Path) -> Iterator[str]:
    """The embeddings route of a server that wants a key."""
    command = [sys.executable, "-m", "cenote", "serve", str(model), "--port", "0", "--api-key", KEY]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as one:
        killer = threading.Timer(TIMEOUT_SECONDS, one.kill)
        killer.start()
        assert one.stdout is not None
        yield one.stdout.readline().split()[-1] + "/v1/embeddings"
        killer.cancel()
        one.kill()


def figures(printed: str) -> dict[str, str]:
    return dict(re.findall(r"^ *(.+?): +(\S.*)$", printed, re.MULTILINE))


def test_a_model_in_this_process(cenote: Cenote, model: Path, tmp_path: Path) -> None:
    done = cenote("bench", model, "--corpus", "short", "--texts", 8, "--rounds", 2, "--json", tmp_path / "it.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "it.json").read_text())["results"]
    assert (row["texts"], row["rounds"], len(row["seconds"])) == (8, 2, 2)
    assert row["tokens_per_second"] / row["texts_per_second"] == pytest.approx(row["tokens"] / 8)
    printed = figures(done.stdout)
    assert float(printed["Total token throughput (tok/s)"]) == pytest.approx(row["tokens_per_second"], abs=0.01)
    assert float(printed["of the slowest round"]) <= float(printed["of the fastest round"])


def test_clients_at_a_server_with_a_file_and_a_plot(cenote: Cenote, url: str, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the cat\n\na dog and a cat\nthe dog\n")
    files = ("--file", tmp_path / "lines.txt", "--json", tmp_path / "it.json", "--plot", tmp_path / "it.svg")
    done = cenote("bench", "--url", url, "--model", "tiny", *SHORT, *files, "--clients", "1,3", CENOTE_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "it.json").read_text())["results"]
    assert [row["clients"] for row in rows] == [1, 3]
    for row, printed in zip(rows, map(figures, done.stdout.split("\n\n")), strict=True):
        assert row["successful_requests"] > 0
        assert row["failed_requests"] == 0
        assert printed["Successful requests"] == str(row["successful_requests"])
        assert row["total_input_tokens"] / row["duration_seconds"] == pytest.approx(row["total_token_throughput"])
        assert 0 < row["median_e2el_ms"] <= row["p99_e2el_ms"]
    names = "Failed requests|Request throughput (req/s)|Input throughput (inputs/s)|Total token throughput (tok/s)"
    assert {*names.split("|"), *(f"{which} E2EL (ms)" for which in ("Mean", "Median", "P99"))} <= set(printed)
    assert "</svg>" in (tmp_path / "it.svg").read_text()


def test_arrivals_at_a_rate_in_batches(cenote: Cenote, url: str, tmp_path: Path) -> None:
    flags = (
        "--rate",
        "20",
        "--batch",
        4,
        "--api-key",
        KEY,
        "--encoding-format",
        "base64",
        "--json",
        tmp_path / "it.json",
    )
    done = cenote("bench", "tiny", "--url", url, *SHORT, *flags)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "it.json").read_text())["results"]
    assert (row["clients"], row["request_rate"]) == (None, 20)
    assert row["input_throughput"] == pytest.approx(4 * row["request_throughput"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model", "other", "--api-key", KEY), "answered 404: the model 'other' is not served here"),
        (("--model", "tiny"), "answered 401"),
        (("--model", "tiny", "--batch", 600), "--batch is 600, but must be at least 1 and at most the 512 texts"),
        (("--model", "tiny", "--clients", "2", "--rate", "2"), "not both"),
        (("--model", "tiny", "--clients", "1,x"), "--clients '1,x' must be numbers over 0"),
        (("--model", "tiny", "--dtype", "int8"), "--dtype: model options are not for a server"),
        (("--model", "tiny", "--plot", "it.pdf"), "must end in .svg or .png"),
        (("--model", "tiny", "--json", "no/such/folder.json"), "there is no folder no/such"),
    ],
)
def test_what_is_wrong_is_said(cenote: Cenote, url: str, flags: tuple[str, ...], message: str) -> None:
    done = cenote("bench", "--url", url, *SHORT, *flags)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("path", "message"), [("/health", "answered 405"), ("/nothing", "is it the route (mostly .../v1/embeddings)")]
)
def test_a_wrong_route_is_said(cenote: Cenote, url: str, path: str, message: str) -> None:
    done = cenote("bench", "--url", url.replace("/v1/embeddings", path), "--model", "tiny", "--api-key", KEY)
    assert done.returncode == 1
    assert message in done.stderr


class _OnlyOnce(BaseHTTPRequestHandler):
    """Answers its first request and no other."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        seen = getattr(self.server, "seen", False)
        self.server.seen = True  # type: ignore[attr-defined]
        body = b"broken" if seen else b'{"data": [{"embedding": [1.0]}]}'
        self.send_response(500 if seen else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


def test_a_server_that_is_not_there_and_one_that_fails(cenote: Cenote) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _OnlyOnce) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        failing = cenote("bench", "--url", address, "--model", "tiny", *SHORT, "--clients", 2)
        server.shutdown()
        thread.join()
    assert failing.returncode == 1
    assert figures(failing.stdout)["Successful requests"] == "0"
    assert "with 2 clients no request was answered: status 500: broken" in failing.stderr
    absent = cenote("bench", "--url", address, "--model", "tiny")
    assert absent.returncode == 1
    assert f"no server answers at {address}" in absent.stderr


def test_a_plot_without_matplotlib_names_the_extra(cenote: Cenote, url: str, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('absent', name='matplotlib')\n")
    plot = ("--plot", tmp_path / "it.svg")
    done = cenote("bench", "--url", url, "--model", "tiny", *SHORT, *plot, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "plots need matplotlib: pip install 'cenote[bench]'" in done.stderr

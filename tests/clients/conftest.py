"""Two servers for real clients, which run in an environment of their own: see `make test-clients`.

`server` has one model of each kind; `bge_m3` has one that gives three outputs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import CENOTE_BIN, Server, serve

TESTS = Path(__file__).resolve().parents[1]
OFF = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
}
"""What clients would ask of other hosts by themselves."""
os.environ.update(OFF)


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


os.environ["TIKTOKEN_CACHE_DIR"] = str(_folder_of("litellm") / "litellm_core_utils" / "tokenizers")
"""The tokenizer of OpenAI's models, which LangChain loads and litellm carries."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server", metavar="URL", help="ask the server that runs there instead of starting one")


def pytest_report_header() -> str:
    return f"cohere-{importlib.metadata.version('cohere')}, the server from {CENOTE_BIN}"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the models by their names, written by Cenote's own environment."""
    command = [str(CENOTE_BIN / "python"), str(TESTS / "clients" / "write_models.py")]
    command.append(str(tmp_path_factory.mktemp("models")))
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "scripts")])
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: Path(folder) for name, folder in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if url := request.config.getoption("--server"):
        with httpx.Client(base_url=url, timeout=60) as http:
            yield Server(url, http)
        return
    folders = request.getfixturevalue("folders")
    served = {name: folder for name, folder in folders.items() if name != "bge-m3"}
    with serve(served, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


@pytest.fixture(scope="session")
def bge_m3(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve({"bge-m3": folders["bge-m3"]}, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running

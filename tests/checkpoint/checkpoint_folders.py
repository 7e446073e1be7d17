"""Checkpoint folders for these tests: tiny ones that may be written to, and edits of their files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

CheckpointFactory = Callable[..., Path]
"""The fixture `checkpoint`."""


def writable(folder: Path, target: Path) -> Path:
    """Copy a shared checkpoint to where a test may change it."""
    return Path(shutil.copytree(folder, target / "model"))


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON object; the value `...` removes a key. The file is made where it is missing."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= changes
    write(path, {key: value for key, value in content.items() if value is not ...})


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def edit_modules(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the entries of `modules.json` in place."""
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    write(folder / "modules.json", modules)

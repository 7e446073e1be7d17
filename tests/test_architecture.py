"""ARCHITECTURE.md names every file once, with what it is for, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "cenote"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LISTED = re.findall(r"^- `([\w/]+\.py)`: (.+)$", TEXT, flags=re.MULTILINE)


def _source_files() -> set[str]:
    """Every Python file of the package but the empty ones that only mark a folder."""
    return {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if path.read_bytes().strip()}


def test_one_line_for_every_file() -> None:
    names = [name for name, _ in LISTED]
    assert len(names) == len(set(names)), "a file is listed twice"
    assert set(names) == _source_files()


def test_the_files_that_the_text_names_are_there() -> None:
    for name in re.findall(r"`([\w/]+\.py)`", TEXT):
        places = (SOURCE / name, ROOT / name)
        assert any(place.exists() for place in places), f"ARCHITECTURE.md names {name}, which is not there"


def test_the_layers_are_those_that_are_checked() -> None:
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.findall(r'^    "(cenote\.[^"]+)",$', config, flags=re.MULTILINE)
    drawn = re.search(r"^```text\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert layers
    assert drawn is not None
    shown = [line.split("  ")[0].strip() for line in drawn.group(1).splitlines() if line.strip()]
    assert shown == [layer.replace("cenote.", "") for layer in layers]

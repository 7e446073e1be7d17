"""`docs/cli.md` has a row for every flag, and every verb is one file with a row and a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cenote.cli import VERBS, build_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
NAMES = [verb.__name__ for verb in VERBS]
"""Of functions and files; the commands have hyphens in them."""


def command(name: str) -> str:
    return name.replace("_", "-")


def rows(verb: str) -> Iterator[str]:
    """Return the page's row of each argument and flag of `verb`."""
    for argument in build_app()[command(verb)].assemble_argument_collection():
        if not argument.parse or argument.children:
            continue
        names = ", ".join(f"`{name}`" for name in argument.names)
        default = argument.field_info.default
        is_unset = default is argument.field_info.empty or default in (None, (), False)
        variables = ", ".join(f"`{name}`" for name in argument.parameter.env_var or ())
        cells = [names, "-" if is_unset else f"`{default}`", variables or "-", argument.parameter.help]
        yield f"| {' | '.join(map(str, cells))} |"


def test_every_file_is_a_verb() -> None:
    folder = ROOT / "src" / "cenote" / "cli"
    assert sorted(NAMES) == sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_page_has_every_verb_with_its_summary(verb: object) -> None:
    summary = str(verb.__doc__).splitlines()[0]
    assert f"| `cenote {command(verb.__name__)}` | {summary} |" in PAGE  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_page_has_every_flag(name: str) -> None:
    missing = [row for row in rows(name) if row not in PAGE]
    assert not missing, "docs/cli.md lacks these rows:\n" + "\n".join(missing)


def test_page_has_no_other_flag() -> None:
    known = {row for name in NAMES for row in rows(name)}
    assert set(re.findall(r"^\| `--.*\|$", PAGE, re.MULTILINE)) <= known


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_has_a_test_file(name: str) -> None:
    assert (ROOT / "tests" / "cli" / f"test_cli_{name}.py").is_file()

"""Every dialect is one file with a page in the docs, a test of its own and an entry in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cenote.server import dialects
from cenote.server.dialect import Dialect

ROOT = Path(__file__).parents[2]
FILES = sorted(path.stem for path in Path(dialects.__file__).parent.glob("*.py") if path.stem != "__init__")


def test_every_file_is_in_the_table() -> None:
    assert sorted(dialect.name for dialect in dialects.DIALECTS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_every_dialect_has_a_test_file(name: str) -> None:
    assert (ROOT / "tests" / "server" / f"test_server_{name}.py").is_file()


@pytest.mark.parametrize("dialect", dialects.DIALECTS, ids=lambda dialect: dialect.name)
def test_page_names_every_route_and_field(dialect: Dialect) -> None:
    page = (ROOT / "docs" / "api" / f"{dialect.name}.md").read_text(encoding="utf-8")
    for operation in dialect.operations:
        path = re.sub(r":\w+}", "}", operation.path)
        assert f"`{operation.method} {path}`" in page
        for field in operation.body.model_fields if operation.body else ():
            assert f"| `{field}` |" in page, f"docs/api/{dialect.name}.md has no row for {field}"

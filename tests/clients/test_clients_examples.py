"""The examples of clients in the documents run as they are printed, but for the address."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import Server, examples

ROOT = Path(__file__).resolve().parents[2]
PRINTED_URL = "http://127.0.0.1:8000"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [(page, number) for page in PAGES for number in range(len(examples(page)))]


@pytest.mark.parametrize(("page", "number"), EXAMPLES, ids=[f"{page.stem}-{number}" for page, number in EXAMPLES])
def test_example_runs(
    page: Path, number: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    example = examples(page)[number]
    server: Server = request.getfixturevalue("bge_m3" if "bge-m3" in example else "server")
    assert PRINTED_URL in example
    exec(compile(example.replace(PRINTED_URL, server.url), page.name, "exec"), {})
    assert capsys.readouterr().out.strip(), "an example prints what it got"


@pytest.mark.parametrize("page", ["cohere", "encode", "jina", "openai", "tei", "vllm", "voyage"])
def test_every_dialect_has_an_example(page: str) -> None:
    assert examples(ROOT / "docs" / "api" / f"{page}.md")

"""The examples of the dialects' pages run as they are printed, and their errors are what the server answers.

Examples of a vendor's own client are marked `python client`; they run where those clients are installed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from running import RunningServer

PAGES = Path(__file__).parents[2] / "docs" / "api"
MODELS = {"all-MiniLM-L6-v2": "dense", "my-reranker": "reranker", "bge-m3": "m3"}
PRINTED = {
    "cohere": r"\[\(\d, .+\), \(\d, .+\)\]\n",
    "jina": "2 64\n",
    "voyage": r"\[2, 1\]\n",
    "encode": r"(64 \d+ \d+\n){2}",
}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("/cohere/v2/embed", {"model": "dense", "texts": ["a"], "output_dimension": 65}),
    "jina": ("/jina/v1/embeddings", {"model": "nope", "input": "a"}),
    "voyage": ("/voyage/v1/rerank", {"model": "dense", "query": "a", "documents": ["b"], "top_k": 0}),
}


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PRINTED)
def test_example_runs(kinds: RunningServer, capsys: pytest.CaptureFixture[str], page: str) -> None:
    (example,) = blocks(page, "python")
    example = example.replace("http://127.0.0.1:8000", kinds.url)
    for printed, served in MODELS.items():
        example = example.replace(f'"{printed}"', f'"{served}"')
    exec(compile(example, f"{page}.md", "exec"), {})
    assert re.fullmatch(PRINTED[page], capsys.readouterr().out)


@pytest.mark.parametrize("page", REFUSED)
def test_error_is_as_printed(kinds: RunningServer, page: str) -> None:
    (printed,) = blocks(page, "json")
    path, body = REFUSED[page]
    assert kinds.http.post(path, json=body).json() == json.loads(printed)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([\w./-]+\.md)?(?:#([\w-]+))?\)", text):
            linked = page if not target else (page.parent / target).resolve()
            assert linked.is_file(), f"{page.name} links {target}"
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}
            assert not anchor or anchor in anchors, f"{page.name} links #{anchor}"

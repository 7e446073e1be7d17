"""The page at /docs has every operation and field, and needs nothing but itself."""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser

import pytest
from running import RunningServer

from cenote.server.describe import describe
from cenote.server.dialects import DIALECTS
from cenote.server.docs_page import docs_page

VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would make of the page: its ids, its links, and whether every element is closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(given["href"])] if "href" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(server: RunningServer) -> str:
    answer = server.http.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    return answer.text


def test_needs_nothing_from_elsewhere(text: str) -> None:
    page = Page(text)
    assert page.open == []
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert page.attributes <= {"id", "href", "charset", "name", "content", "lang"}
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_every_link_leads_somewhere(text: str, server: RunningServer) -> None:
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors
    assert anchors <= set(page.ids)
    for link in {link for link in page.links if not link.startswith("#")}:
        assert server.http.get(f"/{link}").status_code == 200


def test_every_operation_and_every_field_is_there(text: str) -> None:
    for path, methods in describe(DIALECTS)["paths"].items():
        for method, operation in methods.items():
            summary = escape(operation["summary"])
            assert f"<b>{method.upper()}</b> <code>{path}</code> {summary}" in text
    for dialect in DIALECTS:
        for operation in dialect.operations:
            place = f"/{dialect.name}{operation.path}".replace(":path", "")
            shown = re.search(rf"<code>{re.escape(place)}</code>.*?</details>", text, re.DOTALL)
            assert shown, place
            for name, field in operation.body.model_fields.items() if operation.body else ():
                assert f"<td><code>{name}</code></td>" in shown.group(), f"{place} {name}"
                assert escape(field.description or "") in shown.group(), f"{place} {name}"


def test_what_a_description_says_is_text() -> None:
    description = {
        "info": {"title": "<b>&", "version": "1"},
        "paths": {"/a<b>": {"get": {"tags": ["<i>"], "summary": "<u>", "operationId": "a", "responses": {
            "200": {}, "default": {}}}}},
        "components": {"schemas": {"S": {"description": "<script>", "properties": {"<q>": {"enum": ["<s>"]}}}}},
    }  # fmt: skip
    page = docs_page(description).decode()
    for tag in ("<b>&", "<a<b>", "<i>", "<u>", "<script>", "<q>", "<s>"):
        assert tag not in page

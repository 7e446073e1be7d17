"""The examples of `docs/rerankers.md` do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sentence_transformers import CrossEncoder

from cenote import Engine
from fetch_models import ensure
from reranker_folders import tiny_reranker
from tolerances import assert_close

PAGE = (Path(__file__).parents[2] / "docs" / "rerankers.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example.replace("models/all-MiniLM-L6-v2", str(ensure("all-MiniLM-L6-v2"))), "page", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    for line, said in zip(printed, re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE), strict=False):
        assert line == said


def test_the_template_runs(tmp_path: Path) -> None:
    (template,) = re.findall(r"```jinja\n(.*?)```", PAGE, re.DOTALL)
    plain = tiny_reranker(tmp_path / "plain", template=template)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    reference = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    with Engine(tmp_path / "saved") as engine:
        assert_close(engine.score("who", "the cat"), reference.predict([("who", "the cat")]))

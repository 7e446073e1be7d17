"""The examples of the page run as they are printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from running import RunningServer

PAGE = (Path(__file__).parents[2] / "docs" / "api" / "openai.md").read_text(encoding="utf-8")


def test_python_example(server: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    example = example.replace("http://127.0.0.1:8000", server.url).replace("all-MiniLM-L6-v2", "tiny")
    names: dict[str, object] = {}
    exec(compile(example, "openai.md", "exec"), names)
    names["client"].close()  # type: ignore[attr-defined]
    assert capsys.readouterr().out.split()[:2] == ["2", "64"]


def test_error_example(server: RunningServer) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    answer = server.http.post("/openai/v1/embeddings", json={"model": "tiny", "input": "a", "dimensions": "16"})
    assert answer.json() == json.loads(example)

"""The examples of docs/long-texts.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cenote import Engine, PoolingParams
from tiny import add_sentence_transformers_files, tiny_checkpoint

PAGE = (Path(__file__).parents[2] / "docs" / "long-texts.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = "the quick brown fox jumps over the lazy dog. " * 6
SMALLER = {
    "chunk_overlap=32": "chunk_overlap=8",
    "chunk_size=128": "chunk_size=32",
    "(0, 120), (120, 260)": "(0, 60), (60, 130)",
}
"""A tiny model reads 64 tokens."""


def test_examples(tmp_path: Path) -> None:
    folder = add_sentence_transformers_files(tiny_checkpoint("bert", tmp_path / "tiny"), normalize=True)
    assert len(EXAMPLES) == 2
    with Engine(folder) as engine:
        for example in EXAMPLES:
            for printed, smaller in SMALLER.items():
                example = example.replace(printed, smaller)
            names = {"engine": engine, "text": TEXT, "texts": [TEXT, "fox"]}
            exec(compile(example, "long-texts.md", "exec"), names)
        assert names["found"].contexts[-1] > 0  # type: ignore[attr-defined]
        ids = engine.tokenize(TEXT)[0][:40]
        (raw,) = re.findall(r"`engine\.(pool\(ids[^`]+)`", PAGE)
        (found,) = eval(f"engine.{raw}", {"engine": engine, "ids": ids, "PoolingParams": PoolingParams})
        assert found.shape[0] == 2


@pytest.mark.parametrize("flag", ["--long-texts", "--chunk-overlap"])
def test_flags_exist(flag: str) -> None:
    assert flag in PAGE
    assert f"`{flag}`" in (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")

"""Tokenizer folders, made once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from text_folders import FOLDERS

FolderFactory = Callable[[str], Path]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> FolderFactory:
    """`tokenizer_folder(name)`: a folder of `text_folders.FOLDERS`. Do not write to it."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = FOLDERS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return make

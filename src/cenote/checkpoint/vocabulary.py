"""Token ids of single tokens, looked up in the checkpoint's tokenizer files without transformers."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cenote.checkpoint.jsonfile import read_optional_object
from cenote.errors import CheckpointError

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
)


class Vocabulary:
    """The vocabulary of a tokenizer folder. It is read when the first token is asked for, not before."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = settings

    @property
    def is_readable(self) -> bool:
        """Whether there is a file in which tokens can be looked up."""
        return any((self._folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))

    def token_id(self, token: str) -> int | None:
        """Return the id of `token`, or `None` where it is not one token of the vocabulary."""
        found = self._ids(token)
        return None if found is None else int(found)

    def special(self, role: str) -> int | None:
        """Return the id of the token that the tokenizer files name for `role`, such as `mask_token`."""
        value = self._settings.get(role) or self._special_tokens_map.get(role)
        content = value.get("content") if isinstance(value, dict) else value
        return self.token_id(content) if isinstance(content, str) else None

    def require(self, token: str, source: str) -> int:
        """Return the id of `token`; raise `CheckpointError` naming `source`, which asked for it, where it has none."""
        found = self.token_id(token)
        if found is None:
            raise CheckpointError(f"{source} asks for the token {token!r}, which the tokenizer in {self._folder} lacks")
        return found

    def _ids(self, token: str) -> int | None:
        tokenizer = self._tokenizer
        return tokenizer.token_to_id(token) if tokenizer is not None else self._lines.get(token)

    @cached_property
    def _special_tokens_map(self) -> dict[str, Any]:
        return read_optional_object(self._folder / "special_tokens_map.json")

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        path = self._folder / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises no narrower class
            raise CheckpointError(f"{path} cannot be read ({error}); fetch it again") from error

    @cached_property
    def _lines(self) -> dict[str, int]:
        path = self._folder / "vocab.txt"
        if not path.is_file():
            raise CheckpointError(
                f"{self._folder} has neither tokenizer.json nor vocab.txt, one of which is needed to find its tokens; "
                f"convert the tokenizer with transformers and save it again"
            )
        lines = path.read_text(encoding="utf-8").splitlines()
        return {line: index for index, line in enumerate(lines)}

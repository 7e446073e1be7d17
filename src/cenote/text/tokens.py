"""Texts as their tokenizer sees them: for people and clients that look at single tokens, not for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one text, nothing cut; the four lists have one entry for each token.

    `strings` are the vocabulary's. `special` are those that the tokenizer put around the text. `offsets` are characters
    of `text`, from and to, (0, 0) for special tokens; `text` is the caller's own, with its prompt before it.
    """

    text: str
    ids: list[int]
    strings: list[str]
    special: list[bool]
    offsets: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.ids)


def read_tokens(backend: Tokenizer, texts: Sequence[str], *, add_special_tokens: bool) -> list[Tokens]:
    """Tokenise `texts`, which are valid Unicode, in one batch."""
    encodings = backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
    return [_tokens(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]


def _tokens(text: str, encoding: Encoding) -> Tokens:
    return Tokens(
        text=text,
        ids=encoding.ids,
        strings=encoding.tokens,
        special=[mask == 1 for mask in encoding.special_tokens_mask],
        offsets=encoding.offsets,
    )

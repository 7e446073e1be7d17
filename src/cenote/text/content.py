"""The tokens of texts, without special tokens, in one batch; of a long text only the part that truncation keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer

from cenote.text.locality import Locality, find_cut, find_cut_before
from cenote.text.options import TruncationSide
from cenote.text.tokenized import IntArray
from cenote.text.truncate import kept_slice

FEW_CHARACTERS = 1000
"""Strings of no more characters in all are tokenised where they come in, by the call that keeps Python's lock: that
takes less time than the way to other threads, and to the lock behind others, and back."""

_FIRST_CHARS_PER_TOKEN = 8
_GROWTH = 4
_COUNTED_CHARS = 200_000
_BATCH_TEXTS = 1024
"""Texts that the tokenizer gets at once: what it returns takes a hundred times the memory of the ids that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How much of each text is wanted: at most `limit` tokens (`None`: all), cut at `side`.

    `exact` asks for the true number of tokens of texts up to 200,000 characters, for an error message.
    """

    limit: int | None
    side: TruncationSide
    offsets: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """Tokens of one text: at most `limit` ids, `offsets` `[n, 2]` in characters of the text, and its `length`.

    `length` is the number of tokens before the cut; where `is_exact` is false there are more.
    """

    ids: IntArray
    offsets: IntArray | None
    length: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a text, `whole` or between a safe cut and one end."""

    text: str
    start: int
    whole: bool


def read_contents(backend: Tokenizer, locality: Locality, texts: Sequence[str], wanted: Wanted) -> list[Content]:
    """Tokenise `texts`. The ids equal those of whole texts, however much of a text is read."""
    contents: dict[int, Content] = {}
    cuttable = wanted.limit is not None and (locality.head if wanted.side == "right" else locality.tail)
    num_chars = _first_chars(wanted)
    pending = list(range(len(texts)))
    while pending:
        pieces = [_piece(texts[i], num_chars, wanted.side) if cuttable else _Piece(texts[i], 0, True) for i in pending]
        for i, piece, encoding in zip(pending, pieces, _encode(backend, pieces, wanted), strict=True):
            if piece.whole or len(encoding) > (wanted.limit or 0):
                contents[i] = _content(piece, encoding, wanted)
        pending = [i for i in pending if i not in contents]
        num_chars *= _GROWTH
    return [contents[i] for i in range(len(texts))]


def first_tokens(backend: Tokenizer, locality: Locality, texts: Sequence[str], limit: int) -> list[tuple[str, bool]]:
    """Return each text up to the end of its `limit`th token, and whether something is left out."""
    contents = read_contents(backend, locality, texts, Wanted(limit=limit, side="right", offsets=True))
    return [(_up_to_last_token(*pair), pair[1].length > limit) for pair in zip(texts, contents, strict=True)]


def _up_to_last_token(text: str, content: Content) -> str:
    if content.offsets is None or content.length == len(content.ids):
        return text
    return text[: int(content.offsets[-1, 1])]


def _first_chars(wanted: Wanted) -> int:
    num_chars = _FIRST_CHARS_PER_TOKEN * ((wanted.limit or 0) + 8)
    return max(num_chars, _COUNTED_CHARS) if wanted.exact else num_chars


def _piece(text: str, num_chars: int, side: TruncationSide) -> _Piece:
    """Return a stretch of at least `num_chars` characters, the whole text where it is not much longer or has no cut."""
    if len(text) <= 2 * num_chars:
        return _Piece(text, 0, True)
    cut = find_cut(text, num_chars) if side == "right" else find_cut_before(text, len(text) - num_chars)
    if cut is None:
        return _Piece(text, 0, True)
    return _Piece(text[:cut], 0, False) if side == "right" else _Piece(text[cut:], cut, False)


def _encode(backend: Tokenizer, pieces: Sequence[_Piece], wanted: Wanted) -> Iterator[Encoding]:
    if sum(len(piece.text) for piece in pieces) <= FEW_CHARACTERS:
        yield from (backend.encode(piece.text, add_special_tokens=False) for piece in pieces)
        return
    encode = backend.encode_batch if wanted.offsets else backend.encode_batch_fast
    for start in range(0, len(pieces), _BATCH_TEXTS):
        texts = [piece.text for piece in pieces[start : start + _BATCH_TEXTS]]
        yield from encode(texts, add_special_tokens=False)


def _content(piece: _Piece, encoding: Encoding, wanted: Wanted) -> Content:
    length = len(encoding)
    kept = kept_slice(length, length if wanted.limit is None else wanted.limit, wanted.side)
    ids = np.array(encoding.ids, np.int64)[kept]
    offsets = None
    if wanted.offsets:
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)[kept] + piece.start
    return Content(ids, offsets, length, piece.whole)

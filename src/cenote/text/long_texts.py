"""What a caller wants done with a text over the limit: cut it, refuse it, or read it in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cenote.errors import InputError

LongTexts = Literal["truncate", "error", "chunk"]


@dataclass(frozen=True, kw_only=True)
class LongTextPolicy:
    """The decision for one request. Neighbouring blocks share `overlap` tokens of the text."""

    kind: LongTexts
    overlap: int = 0

    @classmethod
    def of(cls, truncate: bool, long_texts: LongTexts | None = None, chunk_overlap: int = 0) -> LongTextPolicy:
        """Read a caller's options: `long_texts` where it is given, else `truncate` (cut) or not (refuse).

        Raises `InputError` where they contradict each other.
        """
        if long_texts is not None and long_texts not in get_args(LongTexts):
            raise InputError(
                f"long_texts must be one of {', '.join(get_args(LongTexts))}, not {long_texts!r}", param="long_texts"
            )
        kind: LongTexts = long_texts or ("truncate" if truncate else "error")
        if kind == "truncate" and not truncate:
            raise InputError("long_texts is 'truncate' but truncate is off: leave one of them out", param="long_texts")
        if isinstance(chunk_overlap, bool) or not isinstance(chunk_overlap, int) or chunk_overlap < 0:
            raise InputError(
                f"chunk_overlap must be an integer of at least 0, not {chunk_overlap!r}", param="chunk_overlap"
            )
        if chunk_overlap and kind != "chunk":
            raise InputError("chunk_overlap needs long_texts='chunk'", param="chunk_overlap")
        return cls(kind=kind, overlap=chunk_overlap)

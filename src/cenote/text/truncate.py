"""Truncation in ids: how much of a text or of a pair is kept. Special tokens are never counted in here."""

from __future__ import annotations

from cenote.text.options import PairTruncation, TruncationSide
from cenote.text.tokenized import IntArray


def kept_slice(length: int, limit: int, side: TruncationSide) -> slice:
    """Return the rows that are kept of `length` where at most `limit` fit; `side` is the end that is cut."""
    if length <= limit:
        return slice(0, length)
    return slice(length - limit, length) if side == "left" else slice(0, limit)


def cut(ids: IntArray, limit: int, side: TruncationSide) -> IntArray:
    """Return at most `limit` ids."""
    return ids[kept_slice(len(ids), limit, side)]


def pair_lengths(query: int, document: int, limit: int, strategy: PairTruncation) -> tuple[int, int]:
    """Return how many tokens of each text of a pair are kept where at most `limit` fit.

    `longest_first` as the Rust tokenizers do it: the longer text gives way until both are equal, then both share, and
    of an odd `limit` the longer one keeps one more. `only_second` gives the document what the query leaves, which may
    be nothing.
    """
    if query + document <= limit:
        return query, document
    if strategy == "only_second":
        return min(query, limit), max(0, limit - query)
    shorter, longer = min(query, document), max(query, document)
    longer = shorter if shorter > limit else max(shorter, limit - shorter)
    if shorter + longer > limit:
        shorter = limit // 2
        longer = shorter + limit % 2
    return (longer, shorter) if query > document else (shorter, longer)

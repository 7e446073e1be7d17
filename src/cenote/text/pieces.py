"""Texts in pieces that are read in one context: late chunking. Which tokens belong to which piece is decided here.

Special tokens and the prompt belong to no piece. A text over the limit is read in several contexts, split between
pieces, each with special tokens and prompt around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cenote.errors import InputError, TooLongError
from cenote.text.blocks import check_prompt_share, common_prefix
from cenote.text.content import Content
from cenote.text.inputs import Place
from cenote.text.tokenized import IntArray, TokenizedText

Spans = Sequence[tuple[int, int]]
"""Pieces of a text: characters from and to."""

MAX_COVER = 4
"""Overlapping pieces may have this many times the tokens of their text, so that a small request stays a small one."""


class Window(NamedTuple):
    """What one context reads: some neighbouring pieces, and the tokens of the text from `start` to `stop`."""

    pieces: slice
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceContext:
    """Some neighbouring pieces as one sequence, and the rows of each."""

    sequence: TokenizedText
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecedText:
    """One text as contexts, and where each of its pieces lies in it, characters `[k, 2]`."""

    contexts: list[PieceContext]
    characters: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """One text: the ids of prompt and text, and the tokens `[k, 2]` and characters `[k, 2]` that each piece has.

    Tokens are counted from the end of the prompt, characters from the beginning of the text.
    """

    ids: IntArray
    num_prompt_ids: int
    tokens: IntArray
    characters: IntArray

    @property
    def num_tokens(self) -> int:
        return len(self.ids) - self.num_prompt_ids

    def check(self, place: Place) -> Pieces:
        """Return these pieces; raise `InputError` where one has no token, or all together too many."""
        sizes = self.tokens[:, 1] - self.tokens[:, 0]
        if len(empty := np.flatnonzero(sizes < 1)):
            raise place.error(f"has a chunk without tokens, number {int(empty[0])}: leave it out")
        if int(sizes.sum()) > MAX_COVER * self.num_tokens:
            raise place.error(f"has chunks that overlap too much: together they have over {MAX_COVER} times its tokens")
        return self

    def contexts(self, room: int, place: Place, *, split: bool) -> list[Window]:
        """Return what each context reads, where `room` tokens fit beside the special ones.

        Raises `TooLongError` where the text does not fit and `split` is off, `InputError` for a piece over the limit.
        """
        if len(self.ids) <= room:
            return [Window(slice(0, len(self.tokens)), 0, self.num_tokens)]
        if not split:
            raise TooLongError(
                f"{place} has {len(self.ids)} tokens and {room} fit: shorten it, or let it be read in several contexts",
                param=place.param,
                index=place.index,
            )
        check_prompt_share(self.num_prompt_ids, room)
        return self._windows(room - self.num_prompt_ids, place)

    def _windows(self, room: int, place: Place) -> list[Window]:
        """Give each context as many pieces as fit, from the first token of theirs to the last."""
        windows: list[Window] = []
        for number, (first, last) in enumerate(self.tokens.tolist()):
            if last - first > room:
                raise place.error(f"has a chunk of {last - first} tokens, number {number}; the limit is {room}")
            before = windows[-1] if windows else None
            if before is not None and max(before.stop, last) - before.start <= room:
                joined = slice(before.pieces.start, number + 1)
                windows[-1] = Window(joined, before.start, max(before.stop, last))
            else:
                windows.append(Window(slice(number, number + 1), first, last))
        return windows


def pieces_of_size(content: Content, prompt: str, prompt_ids: IntArray, size: int) -> Pieces:
    """Cut a text every `size` tokens; special tokens and prompt are not counted."""
    num_prompt_ids = common_prefix(prompt_ids, content.ids)
    starts = np.arange(0, len(content.ids) - num_prompt_ids, size)
    tokens = np.stack([starts, np.minimum(starts + size, len(content.ids) - num_prompt_ids)], axis=1)
    places = _places(content, prompt, num_prompt_ids)
    characters = np.stack([places[tokens[:, 0], 0], places[tokens[:, 1] - 1, 1]], axis=1)
    return Pieces(ids=content.ids, num_prompt_ids=num_prompt_ids, tokens=tokens, characters=characters)


def pieces_of_spans(content: Content, prompt: str, prompt_ids: IntArray, spans: IntArray) -> Pieces:
    """Give each of `spans` `[k, 2]` the tokens that end in it: one that lies across a boundary belongs to the later."""
    num_prompt_ids = common_prefix(prompt_ids, content.ids)
    places = _places(content, prompt, num_prompt_ids)
    last_characters = np.maximum.accumulate(np.maximum(places[:, 1] - 1, places[:, 0])) if len(places) else places[:, 0]
    tokens = np.searchsorted(last_characters, spans)
    return Pieces(ids=content.ids, num_prompt_ids=num_prompt_ids, tokens=tokens, characters=spans)


def pieces_of_parts(parts: Sequence[str], ids: Sequence[IntArray], prompt_ids: IntArray) -> Pieces:
    """Lay the ids of parts end to end, each tokenised on its own, the first one with the prompt before it.

    Characters count in all parts joined.
    """
    num_prompt_ids = common_prefix(prompt_ids, ids[0])
    return Pieces(
        ids=np.concatenate(ids),
        num_prompt_ids=num_prompt_ids,
        tokens=_ranges(np.cumsum([len(each) for each in ids]) - num_prompt_ids),
        characters=_ranges(np.cumsum([len(part) for part in parts])),
    )


def read_spans(spans: object, text: str, place: Place) -> IntArray:
    """Return `[k, 2]`; raise `InputError` where `spans` are not rising pairs of characters of `text`."""
    param = "chunks" if place.index is None else f"chunks[{place.index}]"
    if not isinstance(spans, list | tuple) or not spans:
        raise InputError(f"{param} must be a list of (start, end) characters, and not empty", param="chunks")
    before = 0
    for number, span in enumerate(spans):
        if not (isinstance(span, list | tuple) and len(span) == 2 and all(type(edge) is int for edge in span)):
            raise InputError(f"{param}[{number}] must be a pair of integers (start, end)", param="chunks")
        if not before <= span[0] < span[1] <= len(text):
            raise InputError(
                f"{param}[{number}] is {tuple(span)}: chunks go from a start to a later end, in the order of their "
                f"starts, in a text of {len(text)} characters",
                param="chunks",
            )
        before = span[0]
    return np.array(spans, np.int64)


def _places(content: Content, prompt: str, num_prompt_ids: int) -> IntArray:
    """Return where each token of the text lies `[n, 2]`, in characters of the text alone."""
    assert content.offsets is not None
    return np.maximum(content.offsets[num_prompt_ids:] - len(prompt), 0)


def _ranges(ends: IntArray) -> IntArray:
    return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)

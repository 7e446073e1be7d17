"""The special tokens that a tokenizer puts around a text or a pair, read from the tokenizer itself.

Content and frame are kept apart so that truncation in ids can never cut a special token off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Encoding, Tokenizer

from cenote.errors import CheckpointError
from cenote.text.tokenized import IntArray

_PROBE = "a"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Special tokens before, between and after n contents (one text, or two of a pair).

    `parts` are n + 1 id arrays, `part_types` their token types, `content_types` the type of each content's tokens.
    """

    parts: tuple[IntArray, ...]
    part_types: tuple[IntArray, ...]
    content_types: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(len(part) for part in self.parts)

    @property
    def num_leading(self) -> int:
        """Number of special tokens before the first content."""
        return len(self.parts[0])

    def join(self, *contents: IntArray) -> IntArray:
        """Return the ids of the whole sequence."""
        return _interleave(self.parts, contents)

    def token_types(self, *lengths: int) -> IntArray:
        """Return the token types of the whole sequence for contents of these lengths."""
        types = [np.full(n, kind, np.int64) for n, kind in zip(lengths, self.content_types, strict=True)]
        return _interleave(self.part_types, types)

    def without_specials(self) -> Frame:
        """Return the frame with nothing around and between the contents."""
        nothing = tuple(part[:0] for part in self.parts)
        return replace(self, parts=nothing, part_types=nothing)

    def with_marker(self, token_id: int) -> Frame:
        """Return the frame with one more token at the end of the leading ones (ColBERT's `[Q]` and `[D]`)."""
        kind = self.content_types[0]
        parts = (np.append(self.parts[0], np.int64(token_id)), *self.parts[1:])
        return replace(self, parts=parts, part_types=(np.append(self.part_types[0], kind), *self.part_types[1:]))


def read_single_frame(backend: Tokenizer) -> Frame:
    """Read the frame of a single text. Raise `CheckpointError` where the tokenizer does not keep to one."""
    return _read(backend.encode(_PROBE), backend.num_special_tokens_to_add(False), num_contents=1)


def read_pair_frame(backend: Tokenizer) -> Frame:
    """Read the frame of a pair. Raise `CheckpointError` where the tokenizer does not keep to one."""
    return _read(backend.encode(_PROBE, _PROBE), backend.num_special_tokens_to_add(True), num_contents=2)


def _read(probe: Encoding, num_special: int, num_contents: int) -> Frame:
    places = np.array([-1 if i is None else i for i in probe.sequence_ids], np.int64)
    bounds = [_extent(places, i) for i in range(num_contents)]
    ids, types = np.array(probe.ids, np.int64), np.array(probe.type_ids, np.int64)
    edges = [0, *(edge for bound in bounds for edge in bound), len(ids)]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    frame = Frame(
        parts=tuple(ids[start:stop] for start, stop in gaps),
        part_types=tuple(types[start:stop] for start, stop in gaps),
        content_types=tuple(int(types[start]) for start, _ in bounds),
    )
    if any(start > stop for start, stop in gaps) or frame.size != num_special:
        raise CheckpointError("the tokenizer's post-processor does not put its special tokens around the text")
    return frame


def _extent(places: IntArray, content: int) -> tuple[int, int]:
    rows = np.flatnonzero(places == content)
    if not len(rows) or rows[-1] - rows[0] + 1 != len(rows):
        raise CheckpointError("the tokenizer's post-processor leaves a text out or takes it apart")
    return int(rows[0]), int(rows[-1]) + 1


def _interleave(parts: tuple[IntArray, ...], contents: tuple[IntArray, ...] | list[IntArray]) -> IntArray:
    pieces = [parts[0]]
    for content, part in zip(contents, parts[1:], strict=True):
        pieces += [content, part]
    return np.concatenate(pieces)

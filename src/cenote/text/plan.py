"""What is the same for all texts of one request: special tokens, limit, prompt."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.text.frame import Frame
from cenote.text.inputs import Place
from cenote.text.options import EncodeOptions, TruncationSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the texts of one request are framed. `limit` counts every token of a sequence."""

    frame: Frame
    limit: int
    side: TruncationSide
    prompt: str
    options: EncodeOptions

    @property
    def room(self) -> int:
        """Most tokens of prompt and text, special tokens and markers not counted."""
        return self.limit - self.frame.size

    def check_length(self, place: Place, length: int, *, is_exact: bool = True) -> None:
        """Raise `TooLongError` where a sequence of this length may not be cut."""
        if length > self.limit and not self.options.truncate:
            raise place.too_long(length, self.limit, is_exact=is_exact)

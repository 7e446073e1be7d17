"""One policy for text that is not valid Unicode, the same in Python and over HTTP."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def scalar_text(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD, as the WHATWG's scalar value strings are made.

    The number of characters stays the same, so positions in the result are positions in `text`. Everything else, NUL
    included, is left to the tokenizer. Valid text is returned as it is; ASCII text is not even read.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(REPLACEMENT, text)
    return text

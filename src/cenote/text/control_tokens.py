"""Control tokens in texts of the caller's: they must not act as those of a prompt do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Tokenizer

_NOTHING = re.compile("(?!)")


def control_pattern(backend: Tokenizer, prompt_texts: Iterable[str]) -> re.Pattern[str]:
    """Return what matches the tokenizer's special tokens, and its other added tokens that a prompt is written with."""
    prompt = "\0".join(prompt_texts)
    added = backend.get_added_tokens_decoder().values()
    acting = {t.content for t in added if t.special or (t.content.strip() and t.content in prompt)}
    longest_first = sorted((content for content in acting if len(content) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NOTHING


def neutral(text: str, control: re.Pattern[str]) -> str:
    """Return `text` with a space behind the first character of each control token, so that it is read as plain text."""
    return control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

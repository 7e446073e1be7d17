"""`engine.tokenize`: the token ids that the model would read."""

from __future__ import annotations

from cenote.core import Core
from cenote.text.inputs import Texts


def tokenize(core: Core, texts: Texts) -> list[list[int]]:
    """Return the token ids of each text, special tokens included, no prompt, nothing cut."""
    return core.encoder.tokenize(texts)

"""From a checkpoint's chat template to the pieces of its prompt.

The template is rendered once, with marks in place of the texts, so that what belongs to whom is known and a document
can be shortened without touching the rest. As in sentence-transformers 6.2, a pair is a message of the role `query` and
one of the role `document`, after an instruction as the `system` message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cenote.errors import CheckpointError, InputError
from cenote.text.chat import Messages
from cenote.text.pair_prompt import PairPrompt, Part, Piece, Slot, SlotName, split_at_control_tokens

Render = Callable[[Messages], str]
"""Writes messages out; raises `InputError` where the template refuses them."""

_MARKS: Mapping[SlotName, str] = {"instruction": "\ue000", "query": "\ue001", "document": "\ue002"}
_PADDED = {name: f"\n\t{mark}\t\n" for name, mark in _MARKS.items()}
"""With white space that no template writes by itself, to see whether it takes such away."""
_PROBES: tuple[Mapping[SlotName, str], ...] = (
    {"instruction": "find", "query": "a query", "document": "one document"},
    {"instruction": "Look for it.", "query": "Why?", "document": " Because, so. "},
)
_ROLES: Mapping[SlotName, str] = {"instruction": "system", "query": "query", "document": "document"}


def read_pair_template(render: Render, control: Callable[[str], re.Pattern[str]]) -> PairPrompt | None:
    """Return the prompt that the template makes of a pair, `None` where it has no place for both texts.

    `control` gives the pattern of the control tokens that some fixed text holds. Raise `CheckpointError` where what the
    template does with the texts goes beyond putting them into their places.
    """
    for structured in (False, True):
        plain = _pieces(render, control, ("query", "document"), structured=structured)
        if plain is not None:
            instructed = _pieces(render, control, ("instruction", "query", "document"), structured=structured)
            return PairPrompt(plain=plain, instructed=instructed)
    return None


def _pieces(
    render: Render, control: Callable[[str], re.Pattern[str]], names: tuple[SlotName, ...], *, structured: bool
) -> tuple[Piece, ...] | None:
    rendered = _rendered(render, {name: _PADDED[name] for name in names}, structured=structured)
    parts = [] if rendered is None else _parts(rendered)
    found = [part.name for part in parts if isinstance(part, Slot)]
    if not set(names) <= set(found) or found.count("document") > 1:
        return None
    for probe in _PROBES:
        texts = {name: probe[name] for name in names}
        if Piece(tuple(parts)).fill(texts) != _rendered(render, texts, structured=structured):
            raise CheckpointError(
                "the checkpoint's chat template does more with a query and a document than put them into their places, "
                "which Cenote does not run"
            )
    fixed = "\0".join(part for part in parts if isinstance(part, str))
    return split_at_control_tokens(parts, control(fixed))


def _rendered(render: Render, texts: Mapping[SlotName, str], *, structured: bool) -> str | None:
    messages: list[dict[str, Any]] = [
        {"role": _ROLES[name], "content": [{"type": "text", "text": text}] if structured else text}
        for name, text in texts.items()
    ]
    try:
        return render(messages)
    except InputError:
        return None


def _parts(rendered: str) -> list[Part]:
    """Split a rendered template at its marks."""
    names: dict[str, Slot] = {}
    for name, mark in _MARKS.items():
        names |= {_PADDED[name]: Slot(name), mark: Slot(name, strip=True)}
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    split = re.split(f"({pattern})", rendered)
    return [names.get(part, part) for part in split if part]

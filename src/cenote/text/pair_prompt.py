"""The prompt that a language model reads a query and a document in: fixed text with slots for the caller's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cenote.errors import InputError

SlotName = Literal["instruction", "query", "document"]
_SLOT = re.compile(r"\{(instruction|query|document)\}")


class Slot(NamedTuple):
    """A place for a text of the caller's; `strip` where the template takes the white space around it away."""

    name: SlotName
    strip: bool = False


Part = str | Slot


@dataclass(frozen=True)
class Piece:
    """A stretch of the prompt that is tokenised on its own. Control tokens stand in pieces without slots only."""

    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> Piece:
        """Read `{instruction}`, `{query}` and `{document}` in `text` as slots."""
        pieces = _SLOT.split(text)
        parts = [Slot(piece) if i % 2 else piece for i, piece in enumerate(pieces)]  # type: ignore[arg-type]
        return cls(tuple(part for part in parts if part != ""))

    @property
    def slots(self) -> set[SlotName]:
        return {part.name for part in self.parts if isinstance(part, Slot)}

    def fill(self, values: Mapping[SlotName, str]) -> str:
        """Return the text with `values` in its slots."""
        return "".join(part if isinstance(part, str) else _filled(part, values) for part in self.parts)

    def around_document(self) -> tuple[Piece, Slot, Piece]:
        """Return what comes before the document, its slot, and what comes after it."""
        at = next(i for i, part in enumerate(self.parts) if isinstance(part, Slot) and part.name == "document")
        slot = self.parts[at]
        assert isinstance(slot, Slot)
        return Piece(self.parts[:at]), slot, Piece(self.parts[at + 1 :])


@dataclass(frozen=True, kw_only=True)
class PairPrompt:
    """The pieces of a prompt without an instruction, and with one where it has a place for it.

    `default_instruction` stands in where the caller gives none.
    """

    plain: tuple[Piece, ...]
    instructed: tuple[Piece, ...] | None = None
    default_instruction: str | None = None

    def pieces_for(self, instruction: str | None) -> tuple[Piece, ...]:
        """Return the pieces of a request, with its instruction filled in. Raise `InputError` where it has no place."""
        instruction = self.default_instruction if instruction is None else instruction
        if instruction is None:
            return self.plain
        if self.instructed is None:
            raise InputError(
                "this model's prompt has no place for an instruction: put it into the query", param="instruction"
            )
        return tuple(_with_instruction(piece, instruction) for piece in self.instructed)


def pieces(*texts: str) -> tuple[Piece, ...]:
    """Return a piece for each text."""
    return tuple(Piece.parse(text) for text in texts)


def split_at_control_tokens(parts: Iterable[Part], control: re.Pattern[str]) -> tuple[Piece, ...]:
    """Return the pieces of one long text: the tokenizer itself ends one at every control token of the fixed text."""
    found: list[Piece] = []
    current: list[Part] = []
    for part in parts:
        matches = list(control.finditer(part)) if isinstance(part, str) else []
        if not matches or not isinstance(part, str):
            current.append(part)
            continue
        start, stop = matches[0].start(), matches[-1].end()
        found += [Piece((*current, part[:start])), Piece((part[start:stop],))]
        current = [part[stop:]]
    found.append(Piece(tuple(current)))
    tidied = (Piece(tuple(part for part in piece.parts if part != "")) for piece in found)
    return tuple(piece for piece in tidied if piece.parts)


def _filled(slot: Slot, values: Mapping[SlotName, str]) -> str:
    value = values[slot.name]
    return value.strip() if slot.strip else value


def _with_instruction(piece: Piece, instruction: str) -> Piece:
    filled: list[Part] = []
    for part in piece.parts:
        is_place = isinstance(part, Slot) and part.name == "instruction"
        filled.append(_filled(part, {"instruction": instruction}) if is_place and isinstance(part, Slot) else part)
    return Piece(tuple(filled))

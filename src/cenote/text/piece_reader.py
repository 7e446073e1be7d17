"""From the texts and the cuts that a caller passes for late chunking to `Pieces`; wrong ones are refused here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cenote.errors import InputError
from cenote.text.content import Content
from cenote.text.inputs import Place, read_strings
from cenote.text.pieces import Pieces, Spans, pieces_of_parts, pieces_of_size, pieces_of_spans, read_spans
from cenote.text.tokenized import IntArray

PiecedTexts = str | Sequence[str] | Sequence[Sequence[str]]
"""Texts to be cut, or texts as lists of their pieces."""


@dataclass(frozen=True, kw_only=True)
class PieceCut:
    """Where texts are cut: at `chunks` of each, every `chunk_size` tokens, or, with neither, between list items."""

    chunks: Spans | Sequence[Spans] | None = None
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        size = self.chunk_size
        if size is not None and self.chunks is not None:
            raise InputError("give chunks or chunk_size, not both", param="chunk_size")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"chunk_size must be an integer of at least 1, not {size!r}", param="chunk_size")


@dataclass(frozen=True, kw_only=True)
class PieceReader:
    """Reads the texts of one request. `read` gives the contents of strings, with offsets; the prompt is put before."""

    prompt: str
    prompt_ids: IntArray
    read: Callable[[list[str]], list[Content]]

    def pieces(self, texts: PiecedTexts, cut: PieceCut, param: str) -> list[tuple[Pieces, Place]]:
        """Return each text's pieces. Raises `InputError` that names the text or the piece at fault."""
        if cut.chunks is None and cut.chunk_size is None:
            return [(self._parts(parts).check(place), place) for parts, place in _read_parts(texts, param)]
        strings, places = read_strings(texts, param=param)  # type: ignore[arg-type]
        contents = self.read([self.prompt + text for text in strings])
        if cut.chunk_size is not None:
            found = [pieces_of_size(content, self.prompt, self.prompt_ids, cut.chunk_size) for content in contents]
        else:
            spans = _read_chunks(cut.chunks, strings, places)
            found = [
                pieces_of_spans(content, self.prompt, self.prompt_ids, each)
                for content, each in zip(contents, spans, strict=True)
            ]
        for pieces, place in zip(found, places, strict=True):
            if not pieces.num_tokens:
                raise place.error("has no tokens that could be cut into chunks")
        return [(pieces.check(place), place) for pieces, place in zip(found, places, strict=True)]

    def _parts(self, parts: list[str]) -> Pieces:
        contents = self.read([self.prompt + parts[0], *parts[1:]])
        return pieces_of_parts(parts, [content.ids for content in contents], self.prompt_ids)


def _read_parts(texts: object, param: str) -> list[tuple[list[str], Place]]:
    if not isinstance(texts, list | tuple) or not texts or isinstance(texts[0], str):
        raise InputError(
            f"{param} must be a list with the pieces of each text, as a list of strings; for texts that are not cut "
            "yet, give chunks or chunk_size",
            param=param,
        )
    read = []
    for number, parts in enumerate(texts):
        if isinstance(parts, str):
            raise Place(param, number).error("is a string, but the list began with a list of pieces: do not mix them")
        read.append((read_strings(parts, param=f"{param}[{number}]")[0], Place(param, number)))
    return read


def _read_chunks(chunks: object, strings: list[str], places: list[Place]) -> list[IntArray]:
    of_each = [chunks] if places[0].index is None else chunks
    if not isinstance(of_each, list | tuple) or len(of_each) != len(strings):
        raise InputError(f"chunks must be a list with the pieces of each of the {len(strings)} texts", param="chunks")
    return [read_spans(*triple) for triple in zip(of_each, strings, places, strict=True)]

"""Texts in: from the command line, from lines, or from JSON lines, never more than one batch in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from cenote.errors import InputError

BATCH_ROWS = 512
BATCH_CHARACTERS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One text, where it stands in the input, and the other fields of its JSON line."""

    text: str
    place: str
    fields: dict[str, Any] = field(default_factory=dict)


def rows_of_arguments(texts: Sequence[str]) -> Iterator[Row]:
    """Return the texts of the command line."""
    for number, text in enumerate(texts, 1):
        yield Row(text=text, place=f"text {number}")


def rows_of_lines(lines: Iterable[bytes], *, jsonl: bool) -> Iterator[Row]:
    """Return one row for each line; with `jsonl` each line is a JSON object whose `text` is read.

    Raises `InputError` that names the line.
    """
    for number, line in enumerate(lines, 1):
        place = f"line {number}"
        if jsonl:
            yield _json_row(line, place)
            continue
        try:
            yield Row(text=line.decode("utf-8").rstrip("\r\n"), place=place)
        except UnicodeDecodeError:
            raise InputError(f"{place} is not valid UTF-8") from None


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Return `rows` in lists that are bounded in number and in characters."""
    batch: list[Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row.text)
        if len(batch) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@contextmanager
def opened(file: Path | None) -> Iterator[BinaryIO]:
    """Open `file`, or standard input where it is `None`."""
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as stream:
        yield stream


def _json_row(line: bytes, place: str) -> Row:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place} is not valid JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise InputError(f"{place} must be a JSON object with a string `text`")
    return Row(text=value["text"], place=place, fields=value)

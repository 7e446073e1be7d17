"""Answers out: JSON lines or one .npy file, written as they come. A file appears only when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import orjson

from cenote.cli._texts import Row
from cenote.errors import OptionError

Answer = Mapping[str, Any]
"""What is written about one text, by name; a numpy array may be in it."""


class Writer(Protocol):
    """Takes the answers of one batch after another."""

    def write(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Append one batch."""

    def finish(self) -> None:
        """Complete what is only known at the end."""


class JsonLines:
    """One object a text: the fields of its JSON line, `index`, `text`, and its answer."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._index = 0

    def write(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        for row, answer in zip(rows, answers, strict=True):
            line: dict[str, Any] = {**row.fields, "index": self._index, "text": _valid(row.text), **answer}
            self._stream.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
            self._index += 1

    def finish(self) -> None:
        self._stream.flush()


class NpyFile:
    """One float32 array `(n, D)`, the `embedding` of each answer. numpy leaves room in the header for n, which is
    written at the end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._shape = (0, 0)

    def write(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:  # noqa: ARG002 - the texts are not kept
        vectors = np.stack([answer["embedding"] for answer in answers])
        if self._shape == (0, 0):
            self._header((0, vectors.shape[1]))
        self._stream.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self._shape = (self._shape[0] + len(vectors), vectors.shape[1])

    def finish(self) -> None:
        self._stream.seek(0)
        self._header(self._shape)

    def _header(self, shape: tuple[int, int]) -> None:
        np.lib.format.write_array_header_1_0(self._stream, {"descr": "<f4", "fortran_order": False, "shape": shape})


@contextmanager
def open_writer(output: Path | None, format: str | None) -> Iterator[Writer]:  # noqa: A002
    """Open `output`, or standard output where it is `None`; `format` is `jsonl`, `npy`, or `None` for the suffix's."""
    chosen = format or ("npy" if output is not None and output.suffix == ".npy" else "jsonl")
    if output is None:
        if chosen == "npy":
            raise OptionError("an .npy file cannot be written to standard output; name a file with --output")
        writer: Writer = JsonLines(sys.stdout.buffer)
        yield writer
        writer.finish()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as stream:
            writer = NpyFile(stream) if chosen == "npy" else JsonLines(stream)
            yield writer
            writer.finish()
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)


def _valid(text: str) -> str:
    """Return `text` as it can be written: half a character, as a broken argument holds it, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")

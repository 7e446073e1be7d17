"""Which line of whose code an operation comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import torch

from cenote.audit.finding import Place

_NOT_THEIRS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def calling_place() -> Place:
    """Return the innermost line on the stack that belongs neither to PyTorch nor to the audit."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THEIRS):
        frame = frame.f_back
    return Place(file="?", line=0, function="?") if frame is None else _place(frame.f_code, frame.f_lineno)


def raising_place(error: BaseException) -> Place:
    """Return the innermost such line that `error` came through."""
    place = Place(file="?", line=0, function="?")
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_NOT_THEIRS):
            place = _place(code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place


def _place(code: object, line: int) -> Place:
    return Place(file=code.co_filename, line=line, function=code.co_qualname)  # type: ignore[attr-defined]

"""Log lines for people or for machines. They never hold a user's text or key.

What a request asked is not logged at all. Errors are the danger: their messages may quote what they failed on. Of an
error the log has the type and the places in the code, and its message only where it was raised by code that never sees
a text: the model's, which gets token ids, or our own words.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

import orjson

from cenote.errors import CenoteError

FIELDS = "fields"
"""The `extra` of a log call that holds names and values, which the JSON form keeps apart."""

WRITE_SECONDS = 0.1
"""A line may wait so long for others to be written with it."""

_TEXTLESS = ("torch.", "cenote.models.", "cenote.pooling.", "cenote.runtime.")
_MODELLING = re.compile(r"transformers\..*\.modeling_")
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Write the process' log to `stream`, stderr by default, as `form` (`text` or `json`) from `level` on."""
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # collected, never shown
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes what an event loop logs some lines at a time, warnings and what other threads log at once.

    A write gives up Python's lock, and under load an event loop that writes for each request waits longer to get it
    back than the line takes.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._flushes_soon: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record` now, or within `WRITE_SECONDS`."""
        try:
            self._lines.append(self.format(record) + self.terminator)
            loop = _running_loop()
            if loop is None or record.levelno >= logging.WARNING:
                self.flush()
            elif loop is not self._flushes_soon:
                self._flushes_soon = loop
                loop.call_later(WRITE_SECONDS, self.flush)
        except Exception:  # noqa: BLE001 - a log line never ends what it is about
            self.handleError(record)

    def flush(self) -> None:
        """Write the lines that wait."""
        with self.lock or nullcontext():
            self._flushes_soon = None
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("".join(lines))
                super().flush()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TextLines(logging.Formatter):
    """`2026-11-29T12:00:00.000Z INFO cenote.access: request route=/v1/embeddings status=200 ...`, for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and more for an error."""
        fields = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}{fields}"
        return "\n    ".join([line, *described(record.exc_info)])


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and the fields of the call."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname, "logger": record.name}
        line |= {"message": _message(record), **_fields(record)}
        error = list(described(record.exc_info))
        if error:
            line["error"] = error
        try:
            return orjson.dumps(line).decode()
        except orjson.JSONEncodeError:  # half a character, or a type of somebody else's log
            return json.dumps(line, default=str)


def described(info: _ExcInfo | None) -> Iterator[str]:
    """Give the lines about an error and what it came from: types, places, and the messages that hold no text."""
    error = None if info is None else info[1]
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield _headline(error)
        for frame in traceback.extract_tb(error.__traceback__):
            yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _headline(error: BaseException) -> str:
    name = type(error).__qualname__
    return f"{name}: {_one_line(str(error))}" if _holds_no_text(error) else f"{name} (its message may hold a text)"


def _holds_no_text(error: BaseException) -> bool:
    if isinstance(error, CenoteError) and error.__cause__ is None:
        return True
    last = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        last = frame
    module = "" if last is None else str(last.f_globals.get("__name__"))
    return module.startswith(_TEXTLESS) or _MODELLING.match(module) is not None


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.name == "asyncio":
        message = re.split(r"[\n<(]", message, maxsplit=1)[0]  # the rest shows objects, errors among them
    return _one_line(message)


def _one_line(message: str) -> str:
    return message.replace("\n", " ").replace("\r", " ")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS, {})
    return fields


def _shown(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value) or "-"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

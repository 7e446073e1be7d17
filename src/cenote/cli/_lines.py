"""What the verbs share that give one JSON object for each text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

from cenote.cli._pipeline import in_batches, rows_of
from cenote.cli._progress import progress
from cenote.config import EngineOptions, option

if TYPE_CHECKING:
    from cenote.engine import Engine
    from cenote.outputs import Usage

Compute = Callable[["Engine", list[str]], Sequence[Mapping[str, Any]]]
"""Gives the answer of each text of a batch."""


@Parameter(name="*", group=Group("Text options", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What is read and where the answers go."""

    file: Path | None = option(None, help="Read the texts from this file, one a line, instead of standard input.")
    jsonl: bool = option(False, help="Lines are JSON objects with a `text`; by default for a file named .jsonl.")
    output: Path | None = option(None, help="Write the answers to this file instead of standard output.")


@dataclass(frozen=True, kw_only=True)
class LineJob:
    """One run of a verb over the texts of the command line, of a file or of standard input."""

    model: str
    texts: Sequence[str]
    lines: LineOptions
    engine: EngineOptions

    def run(self, compute: Compute) -> None:
        """Write one JSON object for each text, in order and in batches."""
        from cenote.cli._vectors import open_writer
        from cenote.engine import Engine

        with ExitStack() as stack:
            rows = rows_of(self.texts, self.lines.file, self.lines.jsonl, stack)
            writer = stack.enter_context(open_writer(self.lines.output, "jsonl"))
            engine = stack.enter_context(Engine(self.model, self.engine))
            advance = stack.enter_context(progress(len(self.texts) or None))
            for batch, answers in in_batches(rows, lambda texts: compute(engine, texts)):
                writer.write(batch, answers)
                advance(len(batch))


def with_usage(answers: Sequence[Mapping[str, Any]], usage: Usage) -> list[dict[str, Any]]:
    """Return each answer behind what its text cost."""
    return [
        {"num_tokens": tokens, "truncated": cut, **answer}
        for answer, tokens, cut in zip(answers, usage.num_tokens, usage.truncated, strict=True)
    ]

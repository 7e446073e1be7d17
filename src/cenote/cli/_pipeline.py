"""Texts in, answers out, in batches: while one batch is computed, the next is tokenised. The same for every verb."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from cenote.cli._texts import Row, batches, opened, rows_of_arguments, rows_of_lines
from cenote.errors import InputError

T = TypeVar("T")

BATCHES_IN_FLIGHT = 2


def rows_of(texts: Sequence[str], file: Path | None, jsonl: bool, stack: ExitStack) -> Iterator[Row]:
    """Return the texts of the command line, else those of `file`, else those of standard input."""
    if texts and file is not None:
        raise InputError("give either texts or --file, not both")
    if texts:
        return rows_of_arguments(texts)
    stream = stack.enter_context(opened(file))
    return rows_of_lines(stream, jsonl=jsonl or (file is not None and file.suffix == ".jsonl"))


def in_batches(rows: Iterable[Row], compute: Callable[[list[str]], T]) -> Iterator[tuple[list[Row], T]]:
    """Return each batch with what `compute` makes of its texts, in order, a few of them in flight."""
    pending: deque[tuple[list[Row], Future[T]]] = deque()
    with ThreadPoolExecutor(max_workers=BATCHES_IN_FLIGHT) as threads:
        for batch in batches(rows):
            pending.append((batch, threads.submit(_compute, compute, batch)))
            if len(pending) == BATCHES_IN_FLIGHT:
                done, future = pending.popleft()
                yield done, future.result()
        for done, future in pending:
            yield done, future.result()


def _compute(compute: Callable[[list[str]], T], batch: list[Row]) -> T:
    try:
        return compute([row.text for row in batch])
    except InputError as error:
        if error.index is None or error.param != "texts":
            raise
        # The position in the batch means nothing to the caller.
        raise error.named(batch[error.index].place, error.index) from None

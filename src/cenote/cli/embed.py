"""`cenote embed`: texts in, vectors out, without a server."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._progress import progress
from cenote.cli._texts import Row, batches, opened, rows_of_arguments, rows_of_lines
from cenote.config import EngineOptions, option
from cenote.errors import InputError

if TYPE_CHECKING:
    from cenote.engine import Engine
    from cenote.outputs import Embeddings

BATCHES_IN_FLIGHT = 2
"""While one batch is computed, the next is tokenised."""


@Parameter(name="*", group=Group("Text options", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """What is read, how it is embedded and where the vectors go."""

    file: Path | None = option(None, help="Read the texts from this file, one a line, instead of standard input.")
    jsonl: bool = option(False, help="Lines are JSON objects with a `text`; by default for a file named .jsonl.")
    output: Path | None = option(None, help="Write the vectors to this file instead of standard output.")
    format: Literal["jsonl", "npy"] | None = option(None, help="Format of the output; by default the file's suffix.")
    input_type: Literal["query", "document"] | None = option(
        None, help="Add the prompt that the model defines for queries or for documents."
    )
    dimensions: int | None = option(None, help="Keep this many first values of each vector (matryoshka).")
    truncate: bool = option(True, help="Cut a text over the model's limit, or stop with an error.")


def embed(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *texts: Annotated[str, Parameter(help="Texts; without any, lines of standard input.")],
    options: TextOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Turn texts into vectors: from arguments, standard input or a file.

    Writes one JSON object for each text, or one .npy array, in the order of the texts. Lines are read and written in
    batches, so that input of any size fits into memory.

    $ cenote embed ./models/all-MiniLM-L6-v2 "The water is clear." "Stones are heavy."
    $ cenote embed ./models/all-MiniLM-L6-v2 --output vectors.npy < lines.txt
    $ cenote embed ./models/all-MiniLM-L6-v2 --file docs.jsonl --output vectors.jsonl --input-type document
    """
    options = options or TextOptions()
    if texts and options.file is not None:
        raise InputError("give either texts or --file, not both")
    from cenote.cli._vectors import open_writer
    from cenote.engine import Engine

    with ExitStack() as stack:
        rows = rows_of_arguments(texts) if texts else _rows_of_stream(options, stack)
        writer = stack.enter_context(open_writer(options.output, options.format))
        opened_engine = stack.enter_context(Engine(model, engine or EngineOptions()))
        advance = stack.enter_context(progress(len(texts) or None))
        for batch, vectors in _embedded(opened_engine, rows, options):
            writer.write(batch, vectors)
            advance(len(batch))


def _rows_of_stream(options: TextOptions, stack: ExitStack) -> Iterator[Row]:
    stream = stack.enter_context(opened(options.file))
    jsonl = options.jsonl or (options.file is not None and options.file.suffix == ".jsonl")
    return rows_of_lines(stream, jsonl=jsonl)


def _embedded(engine: Engine, rows: Iterable[Row], options: TextOptions) -> Iterator[tuple[list[Row], Embeddings]]:
    """Return each batch with its vectors, in order, a few of them in flight."""
    compute = functools.partial(_embed_batch, engine, options)
    pending: deque[tuple[list[Row], Future[Embeddings]]] = deque()
    with ThreadPoolExecutor(max_workers=BATCHES_IN_FLIGHT) as threads:
        for batch in batches(rows):
            pending.append((batch, threads.submit(compute, batch)))
            if len(pending) == BATCHES_IN_FLIGHT:
                done, future = pending.popleft()
                yield done, future.result()
        for done, future in pending:
            yield done, future.result()


def _embed_batch(engine: Engine, options: TextOptions, batch: list[Row]) -> Embeddings:
    try:
        return engine.embed(
            [row.text for row in batch],
            input_type=options.input_type,
            dimensions=options.dimensions,
            truncate=options.truncate,
        )
    except InputError as error:
        if error.index is None:
            raise
        # The position in the batch means nothing to the caller.
        message = str(error).replace(f"{error.param}[{error.index}]", batch[error.index].place)
        raise InputError(message, param=error.param, index=error.index) from None

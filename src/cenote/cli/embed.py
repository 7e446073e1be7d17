"""`cenote embed`: texts in, vectors out, without a server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._pipeline import in_batches, rows_of
from cenote.cli._progress import progress
from cenote.config import EngineOptions, option
from cenote.errors import OptionError
from cenote.params import OUTPUT_TASKS, Output

if TYPE_CHECKING:
    from cenote.engine import Engine
    from cenote.outputs import Encoded


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
    outputs: str = option("dense", help="What to give, with commas: dense, sparse, multi-vector.")
    truncate: bool = option(True, help="Cut a text over the model's limit, or stop with an error.")
    long_texts: Literal["truncate", "error", "chunk"] | None = option(
        None, help="The same choice, or read a long text in blocks and average their vectors: chunk."
    )
    chunk_overlap: int = option(0, help="Tokens that neighbouring blocks share.")

    def output_names(self) -> tuple[Output, ...]:
        """Return the outputs that are asked for. Raises `OptionError` for an unknown one."""
        names = [name.strip().replace("-", "_") for name in self.outputs.split(",")]
        unknown = [name for name in names if name not in OUTPUT_TASKS]
        if unknown:
            raise OptionError(f"--outputs has {unknown[0]!r}; it takes dense, sparse and multi-vector")
        return tuple(output for output in OUTPUT_TASKS if output in names)


def embed(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *texts: Annotated[str, Parameter(help="Texts; without any, lines of standard input.")],
    options: TextOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Turn texts into vectors: from arguments, standard input or a file.

    Writes one JSON object for each text, or one .npy array, in the order of the texts. Lines are read and written in
    batches, so that input of any size fits into memory. Several outputs come from one pass of the model.

    $ cenote embed ./models/all-MiniLM-L6-v2 "The water is clear." "Stones are heavy."
    $ cenote embed ./models/all-MiniLM-L6-v2 --output vectors.npy < lines.txt
    $ cenote embed ./models/all-MiniLM-L6-v2 --file docs.jsonl --output vectors.jsonl --input-type document
    """
    options = options or TextOptions()
    compute = _compute(options)
    from cenote.cli._vectors import open_writer
    from cenote.engine import Engine

    with ExitStack() as stack:
        rows = rows_of(texts, options.file, options.jsonl, stack)
        writer = stack.enter_context(open_writer(options.output, options.format))
        opened_engine = stack.enter_context(Engine(model, engine or EngineOptions()))
        advance = stack.enter_context(progress(len(texts) or None))
        for batch, answers in in_batches(rows, lambda batch: compute(opened_engine, batch)):
            writer.write(batch, answers)
            advance(len(batch))


def _compute(options: TextOptions) -> Callable[[Engine, list[str]], list[dict[str, Any]]]:
    """Return what gives the answers of one batch. Raises `OptionError` where the options do not go together."""
    outputs = options.output_names()
    is_array = options.format == "npy" or (options.format is None and str(options.output).endswith(".npy"))
    if is_array and outputs != ("dense",):
        raise OptionError("an .npy file holds dense vectors; write other outputs as JSON lines")

    def compute(engine: Engine, texts: list[str]) -> list[dict[str, Any]]:
        encoded = engine.encode(
            texts,
            outputs,
            input_type=options.input_type,
            dimensions=options.dimensions,
            truncate=options.truncate,
            long_texts=options.long_texts,
            chunk_overlap=options.chunk_overlap,
        )
        return _answers(encoded)

    return compute


def _answers(encoded: Encoded) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = [
        {"num_tokens": tokens, "truncated": cut}
        for tokens, cut in zip(encoded.num_tokens, encoded.truncated, strict=True)
    ]
    for number, answer in enumerate(answers):
        if encoded.dense is not None:
            answer["embedding"] = encoded.dense[number]
        if encoded.sparse is not None:
            vector = encoded.sparse[number]
            answer["sparse"] = {"indices": vector.indices, "values": vector.values}
        if encoded.multi_vector is not None:
            answer["multi_vector"] = encoded.multi_vector[number]
    return answers

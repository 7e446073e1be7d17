"""`cenote rerank`: texts in the order of their relevance to a query."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._pipeline import rows_of
from cenote.config import EngineOptions, option
from cenote.errors import InputError

if TYPE_CHECKING:
    from cenote.cli._texts import Row
    from cenote.engine import Engine


@Parameter(name="*", group=Group("Rank options", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """What is read, which documents are shown, and where they go."""

    top_n: int | None = option(None, help="Show this many documents at most.")
    threshold: float | None = option(None, help="Show documents whose score is at least this.")
    raw_scores: bool = option(False, help="Give logits instead of what the model's activation makes of them.")
    instruction: str | None = option(None, help="What to look for, for models whose prompt has a place for it.")
    max_tokens_per_query: int | None = option(None, help="Cut the query to this many tokens.")
    max_tokens_per_doc: int | None = option(None, help="Cut each document to this many tokens.")
    jsonl: bool = option(False, help="Lines are JSON objects with a `text`; by default for a file named .jsonl.")
    output: Path | None = option(None, help="Write the ranking to this file instead of standard output.")


def rerank(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    query: Annotated[str, Parameter(help="What the documents are compared with.")],
    file: Annotated[Path | None, Parameter(help="Documents, one a line; without it, standard input.")] = None,
    /,
    *,
    options: RankOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Sort texts by their relevance to a query, the best first.

    Writes one JSON object for each document that is shown: its `index` in the input, its `score` and its `text`.

    $ cenote rerank ./my-reranker "what is a cenote?" passages.txt --top-n 3
    $ cenote rerank ./models/all-MiniLM-L6-v2 "what is a cenote?" docs.jsonl --output ranked.jsonl
    $ cenote rerank Qwen/Qwen3-Reranker-0.6B "unpaid invoices" --instruction "Find the clause." < clauses.txt
    """
    options = options or RankOptions()
    from cenote.cli._vectors import open_writer
    from cenote.engine import Engine

    with ExitStack() as stack:
        rows = list(rows_of((), file, options.jsonl, stack))
        if not rows:
            raise InputError("there is no document to rank: the input is empty")
        writer = stack.enter_context(open_writer(options.output, "jsonl"))
        opened_engine = stack.enter_context(Engine(model, engine or EngineOptions()))
        ranked = _ranked(opened_engine, query, rows, options)
        writer.write([rows[each["index"]] for each in ranked], ranked)


def _ranked(engine: Engine, query: str, rows: list[Row], options: RankOptions) -> list[dict[str, Any]]:
    ranking = engine.rerank(
        query,
        [row.text for row in rows],
        options.top_n,
        raw_scores=options.raw_scores,
        instruction=options.instruction,
        max_tokens_per_query=options.max_tokens_per_query,
        max_tokens_per_doc=options.max_tokens_per_doc,
        threshold=options.threshold,
        return_documents=False,
    )
    return [{"index": each.index, "score": each.score, "truncated": each.truncated} for each in ranking]

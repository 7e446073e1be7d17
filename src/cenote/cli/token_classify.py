"""`cenote token-classify`: texts in, labelled spans out, without a server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._lines import LineJob, LineOptions, with_usage
from cenote.config import EngineOptions, option

if TYPE_CHECKING:
    from cenote.engine import Engine


@Parameter(name="*", group=Group("Label options", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class SpanOptions:
    """How tokens become spans."""

    aggregation: Literal["simple", "none"] = option(
        "simple", help="Join neighbouring tokens of one entity, or give each token by itself."
    )
    truncate: bool = option(True, help="Cut a text over the model's limit, or stop with an error.")


def token_classify(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *texts: Annotated[str, Parameter(help="Texts; without any, lines of standard input.")],
    spans: SpanOptions | None = None,
    lines: LineOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Find the labelled spans of texts: names, places, and whatever else the model marks.

    Writes one JSON object for each text, with its `spans`: `label`, `score`, `start`, `end` (in characters) and `text`.

    $ cenote token-classify dslim/bert-base-NER "Ada Lovelace lived in London."
    $ cenote token-classify ./my-tagger --file docs.jsonl --output spans.jsonl
    """
    options = spans or SpanOptions()
    job = LineJob(model=model, texts=texts, lines=lines or LineOptions(), engine=engine or EngineOptions())
    job.run(lambda opened, batch: _compute(opened, batch, options))


def _compute(engine: Engine, texts: list[str], options: SpanOptions) -> list[dict[str, Any]]:
    found = engine.token_classify(texts, aggregation=options.aggregation, truncate=options.truncate)
    return with_usage([{"spans": [asdict(span) for span in each]} for each in found], found.usage)

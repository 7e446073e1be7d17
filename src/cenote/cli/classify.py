"""`cenote classify`: texts in, labels out, without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._lines import Compute, LineJob, LineOptions, with_usage
from cenote.config import EngineOptions, option
from cenote.errors import OptionError

if TYPE_CHECKING:
    from cenote.engine import Engine


@Parameter(name="*", group=Group("Label options", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Which labels, and what their scores are."""

    labels: str | None = option(
        None, help="Labels of your own, with commas, for a model that was trained on entailment (zero-shot)."
    )
    multi_label: bool = option(False, help="Score each of your own labels by itself, not against the others.")
    hypothesis_template: str | None = option(
        None, help="The sentence that your own label is put into; {} stands for the label."
    )
    raw_scores: bool | None = option(
        None, help="Give logits, or probabilities; by default what the checkpoint asks for."
    )
    truncate: bool = option(True, help="Cut a text over the model's limit, or stop with an error.")


def classify(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *texts: Annotated[str, Parameter(help="Texts; without any, lines of standard input.")],
    labels: LabelOptions | None = None,
    lines: LineOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Label texts: with the model's own labels, or with yours.

    Writes one JSON object for each text: the best `label`, its `score`, and the `scores` of all labels.

    $ cenote classify ./my-classifier "The water is clear." "Stones are heavy."
    $ cenote classify facebook/bart-large-mnli --labels "nature,sport,politics" < lines.txt
    $ cenote classify ./my-classifier --file docs.jsonl --output labels.jsonl --raw-scores
    """
    compute = _compute(labels or LabelOptions())
    LineJob(model=model, texts=texts, lines=lines or LineOptions(), engine=engine or EngineOptions()).run(compute)


def _compute(options: LabelOptions) -> Compute:
    if options.labels is None:
        if options.multi_label or options.hypothesis_template is not None:
            raise OptionError("--multi-label and --hypothesis-template are for labels of your own: give --labels")
        return lambda engine, texts: _own(engine, texts, options)
    if options.raw_scores is not None or not options.truncate:
        raise OptionError("--raw-scores and --no-truncate are for the model's own labels: leave out --labels")
    return lambda engine, texts: _zero_shot(engine, texts, options)


def _own(engine: Engine, texts: list[str], options: LabelOptions) -> list[dict[str, Any]]:
    found = engine.classify(texts, raw_scores=options.raw_scores, truncate=options.truncate)
    answers = [{"label": each.label, "score": each.score, "scores": each.scores} for each in found]
    return with_usage(answers, found.usage)


def _zero_shot(engine: Engine, texts: list[str], options: LabelOptions) -> list[dict[str, Any]]:
    template = {} if options.hypothesis_template is None else {"hypothesis_template": options.hypothesis_template}
    names = [name.strip() for name in str(options.labels).split(",")]
    found = engine.zero_shot(texts, names, multi_label=options.multi_label, **template)
    answers = [{"label": each.label, "score": each.score, "scores": each.scores} for each in found]
    return with_usage(answers, found.usage)

"""`cenote reward`: texts in, rewards out, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._lines import LineJob, LineOptions, with_usage
from cenote.config import EngineOptions

if TYPE_CHECKING:
    from cenote.engine import Engine


def reward(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *texts: Annotated[str, Parameter(help="Texts; without any, lines of standard input.")],
    lines: LineOptions | None = None,
    engine: EngineFlags | None = None,
) -> None:
    """Score how good answers are, as a whole or step by step.

    Writes one JSON object for each text: `reward` is one number, or a list with one for each step of the reasoning. A
    text over the model's limit is an error, since a cut one would be scored as another text.

    $ cenote reward ./my-reward-model "Two and two is four."
    $ cenote reward ./my-reward-model --file answers.jsonl --output rewards.jsonl
    """
    job = LineJob(model=model, texts=texts, lines=lines or LineOptions(), engine=engine or EngineOptions())
    job.run(_compute)


def _compute(engine: Engine, texts: list[str]) -> list[dict[str, Any]]:
    found = engine.reward(texts)
    assert found.usage is not None
    return with_usage([{"reward": each.tolist()} for each in found], found.usage)

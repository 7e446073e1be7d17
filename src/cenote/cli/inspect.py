"""`cenote inspect`: what was read, what was decided, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._reading import Reading, read
from cenote.config import EngineOptions

WEIGHTS_MAX_BYTES = 2**31
"""Up to this size the weights are loaded to see which of them fit; larger ones are only looked at when asked."""


def inspect(
    model: Annotated[str, Parameter(help="Folder or hub id.")],
    /,
    *,
    json: Annotated[bool, Parameter(negative=(), help="Print one JSON object instead of a table.")] = False,
    weights: Annotated[
        bool | None, Parameter(help="Load the weights and name the unused; by default up to 2 GiB.")
    ] = None,
    engine: EngineFlags | None = None,
) -> None:
    """Show what a checkpoint says and what was decided about it, and why.

    Takes the options of `cenote serve`, so that a decision can be tried out. A checkpoint that would not start ends
    with the same error here.

    $ cenote inspect ./models/all-MiniLM-L6-v2
    $ cenote inspect BAAI/bge-m3 --device cpu --json
    """
    reading = read(model, engine or EngineOptions())
    if weights is None:
        weights = sum(path.stat().st_size for path in reading.spec.weight_files) <= WEIGHTS_MAX_BYTES
    report = _report(reading, weights)
    sys.stdout.write(_as_json(report) if json else _as_text(report))


def _report(reading: Reading, weights: bool) -> dict[str, Any]:
    spec = reading.spec
    decisions = [asdict(one) for one in reading.decisions]
    report: dict[str, Any] = {
        "name": spec.name,
        "folder": str(spec.root),
        "revision": spec.revision,
        "tasks": list(spec.tasks),
        "prompts": dict(spec.text.prompts),
        "facts": [{"what": fact.what, "value": fact.value, "source": fact.source} for fact in spec.facts],
        "decisions": decisions,
        "num_parameters": None,
        "unused_weights": None,
    }
    if weights:
        from cenote.models.rewrite import rewrite

        loaded = reading.load()
        if (rewritten := rewrite(loaded, reading.decisions.dtype)) is not None:
            decisions.append(asdict(rewritten))
        path = loaded.attention
        decisions.append({"what": "attention", "value": path.path, "reason": path.reason})
        report |= {"num_parameters": loaded.num_parameters, "unused_weights": list(loaded.unused_weights)}
    return report


def _as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False, indent=2) + "\n"


def _as_text(report: dict[str, Any]) -> str:
    lines = [f"{report['name']}  {report['folder']}", "", "Read from the checkpoint"]
    lines += _table((fact["what"], fact["value"], fact["source"]) for fact in report["facts"])
    if report["prompts"]:
        lines += ["", "Prompts", *_table((name, repr(prompt), "") for name, prompt in report["prompts"].items())]
    lines += ["", "Decided", *_table((one["what"], one["value"], one["reason"]) for one in report["decisions"])]
    lines += ["", "Weights", *_weight_lines(report)]
    return "\n".join(lines) + "\n"


def _weight_lines(report: dict[str, Any]) -> Iterator[str]:
    if report["num_parameters"] is None:
        yield "  not loaded; --weights loads them and names those that are not used"
        return
    yield f"  {report['num_parameters']:,} parameters loaded"
    unused = report["unused_weights"]
    yield f"  not used by this model: {', '.join(unused)}" if unused else "  every weight of the checkpoint is used"


def _table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return aligned lines of three columns."""
    rows = list(rows)
    first, second = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    return [f"  {row[0]:{first}}  {row[1]:{second}}  {row[2]}".rstrip() for row in rows]

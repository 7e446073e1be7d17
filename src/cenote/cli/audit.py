"""`cenote audit`: where would a GPU and the CPU wait for each other?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cenote.config import EngineOptions
from cenote.errors import CenoteError, OptionError

if TYPE_CHECKING:
    from cenote.audit import Report


def audit(
    model: Annotated[str | None, Parameter(help="Folder or hub id.")] = None,
    /,
    *,
    pooler: Annotated[
        str | None, Parameter(help="Audit this class or factory instead of a model: my_module:MyPool.")
    ] = None,
    hidden_size: Annotated[int, Parameter(help="Width of the hidden states that --pooler is called with.")] = 768,
    json_: Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object.")] = False,
) -> None:
    """Find GPU-CPU synchronisations of a model or a pooler, without a GPU.

    Every kind of step runs on PyTorch's `meta` device. Exit code 1 where an operation would wait, or where nobody has
    noted that it does not. docs/audit.md says what this proves and what it cannot see.

    $ cenote audit ./models/all-MiniLM-L6-v2
    $ cenote audit --pooler my_module:MyPool --hidden-size 1024
    """
    if (model is None) == (pooler is None):
        raise OptionError("name a model, or a pooler with --pooler my_module:MyPool")
    report = _audit_pooler(pooler, hidden_size) if pooler is not None else _audit_model(str(model))
    sys.stdout.write(json.dumps(report.as_dict(), indent=2) + "\n" if json_ else report.as_text())
    if not report.is_clean:
        raise CenoteError(f"{report.name} has {len(report.findings)} places where a GPU would wait, or might")


def _audit_model(model: str) -> Report:
    from cenote.audit import audit_model
    from cenote.cli._reading import read

    return audit_model(read(model, EngineOptions(device="cpu")).spec)


def _audit_pooler(target: str, hidden_size: int) -> Report:
    from cenote.audit.pooler import audit_pooler, import_pooler

    return audit_pooler(import_pooler(target), hidden_size=hidden_size, name=target)

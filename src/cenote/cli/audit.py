"""`cenote audit`: where would a GPU and the CPU wait for each other?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cenote.cli._flags import EngineFlags
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
    engine: EngineFlags | None = None,
) -> None:
    """Find, without a GPU, where a GPU and the CPU would wait for each other.

    Every kind of step of a model or of a pooler runs on PyTorch's `meta` device. Exit code 1 where an operation would
    wait, or where nobody has noted that it does not. The device is not used, a dtype other than auto is the only one
    that is tried.

    $ cenote audit ./models/all-MiniLM-L6-v2
    $ cenote audit --pooler my_module:MyPool --hidden-size 1024
    """
    if (model is None) == (pooler is None):
        raise OptionError("name a model, or a pooler with --pooler my_module:MyPool")
    if pooler is not None:
        report = _audit_pooler(pooler, hidden_size)
    else:
        report = _audit_model(str(model), engine or EngineOptions())
    sys.stdout.write(json.dumps(report.as_dict(), indent=2) + "\n" if json_ else report.as_text())
    if not report.is_clean:
        raise CenoteError(f"{report.name}: {len(report.findings)} places where a GPU would wait, or might")


def _audit_model(model: str, options: EngineOptions) -> Report:
    import torch

    from cenote.audit import DTYPES, audit_model
    from cenote.checkpoint import read_model

    spec = read_model(model, options)
    return audit_model(spec, DTYPES if options.dtype == "auto" else (getattr(torch, options.dtype),))


def _audit_pooler(target: str, hidden_size: int) -> Report:
    from cenote.audit.pooler import audit_pooler, import_pooler

    return audit_pooler(import_pooler(target), hidden_size=hidden_size, name=target)

"""`cenote verify`: are the numbers of this model right?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cenote.cli._flags import EngineFlags
from cenote.cli._reading import read
from cenote.config import EngineOptions


def verify(model: Annotated[str, Parameter(help="Folder or hub id.")], /, *, engine: EngineFlags | None = None) -> None:
    """Compare a model's packed run with plain transformers.

    Three texts run packed, then one at a time through transformers, with the same weights on the same device. A
    difference over the tolerance is an error and exit code 1.

    $ cenote verify ./models/all-MiniLM-L6-v2
    $ cenote verify BAAI/bge-m3 --device cuda --dtype float16
    """
    reading = read(model, engine or EngineOptions())
    loaded = reading.load()
    from cenote.models.verify import verify_model

    done = verify_model(loaded, reading.spec)
    print(
        f"{reading.spec.name}: {done.num_texts} texts, {done.num_tokens} tokens; the largest difference, "
        f"in {done.what}, is {done.worst:.1%} of what is allowed"
    )

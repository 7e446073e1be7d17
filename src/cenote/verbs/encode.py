"""`engine.encode`: several outputs of each text from one pass."""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np

from cenote.core import Core, Pending, usage
from cenote.errors import InputError
from cenote.outputs import Encoded
from cenote.params import OUTPUT_TASKS, InputType, Output, PoolingParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.options import EncodeOptions


def encode(
    core: Core,
    texts: Texts,
    outputs: Many[Output] = ("dense", "sparse", "multi_vector"),
    *,
    input_type: InputType | None = None,
    dimensions: int | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate: bool = True,
    param: str = "texts",
) -> Pending[Encoded]:
    """Run the model once over `texts` and give every one of `outputs`.

    Returns `Encoded`: `.dense` `(n, D)`, `.sparse` a `SparseVector` for each text, `.multi_vector` an array `(rows, D)`
    for each text, `None` for what was not asked for. `dimensions` cuts the dense vectors.
    `param` is the name that errors give to `texts`. Raises `UnsupportedTaskError`
    for an output that the model does not have.
    """
    outputs = tuple(dict.fromkeys(outputs))
    params = [_params(output, dimensions) for output in outputs]
    if not params:
        raise InputError(f"name at least one of {', '.join(OUTPUT_TASKS)}", param="outputs")
    for each in params:
        core.check(each)
    tokenized = core.encoder.encode(
        texts,
        EncodeOptions(input_type=input_type, prompt_name=prompt_name, prompt=prompt, truncate=truncate, param=param),
    )
    future = core.submit(tokenized, core.task_params(params, tokenized))

    def assemble(answer: Answer) -> Encoded:
        return Encoded(
            dense=np.stack(answer.arrays("embed")) if "dense" in outputs else None,
            sparse=answer.sparse("embed_sparse") if "sparse" in outputs else None,
            multi_vector=answer.arrays("token_embed") if "multi_vector" in outputs else None,
            usage=usage(tokenized, answer),
        )

    return Pending(future=future, assemble=assemble)


def _params(output: Output, dimensions: int | None) -> PoolingParams:
    if output not in OUTPUT_TASKS:
        raise InputError(f"unknown output {output!r}; known outputs: {', '.join(OUTPUT_TASKS)}", param="outputs")
    return PoolingParams(task=OUTPUT_TASKS[output], dimensions=dimensions if output == "dense" else None)

"""`engine.embed`: one dense vector for each text."""

from __future__ import annotations

import numpy as np

from cenote.core import Core, Pending, usage
from cenote.outputs import Embeddings
from cenote.params import InputType, PoolingParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.options import EncodeOptions


def embed(
    core: Core,
    texts: Texts,
    *,
    input_type: InputType | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate: bool = True,
    param: str = "texts",
) -> Pending[Embeddings]:
    """Embed `texts`: a string, a list of strings, one list of token ids, or a list of those.

    Returns a float32 array `(n, D)` in the order of `texts` that also has `.num_tokens` and `.truncated`. `dimensions`
    keeps the first values of each vector (matryoshka), cut before it is normalised. `None` means what the checkpoint
    asks for; a checkpoint without a Normalize module gives raw vectors. `input_type`, `prompt_name` and `prompt` choose
    what is put before each text. Raises `InputError` for a bad argument, by the name `param` where a text is at fault,
    and `TooLongError` where `truncate` is off.
    """
    params = PoolingParams(task="embed", dimensions=dimensions, use_activation=normalize)
    core.check(params)
    tokenized = core.encoder.encode(
        texts,
        EncodeOptions(input_type=input_type, prompt_name=prompt_name, prompt=prompt, truncate=truncate, param=param),
    )
    future = core.submit(tokenized, core.task_params([params], tokenized))

    def assemble(answer: Answer) -> Embeddings:
        rows = np.stack(answer.arrays("embed"))
        return Embeddings.wrap(rows, usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)

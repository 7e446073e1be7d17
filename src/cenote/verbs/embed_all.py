"""`engine.embed_all`: one vector for each token of each text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending, usage
from cenote.outputs import Answers
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.runtime.runner import with_updates
from cenote.text.inputs import Texts
from cenote.text.options import EncodeOptions, TruncationSide


def embed_all(
    core: Core,
    texts: Texts,
    *,
    prompt_name: str | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
    param: str = "texts",
) -> Pending[Answers[npt.NDArray[np.float32]]]:
    """Give every token of `texts` its vector: float32 `(rows, D)` for each text, special tokens included.

    For models of dense embeddings these are the hidden states that they pool, before any Dense module or L2; for
    multi-vector models their own vectors. The other arguments are those of `embed`. Raises `UnsupportedTaskError` for
    other models.
    """
    pooler, params = core.lane.runner.pooler, PoolingParams(task="token_embed")
    pooler.verify_params("token_embed", params)
    options = EncodeOptions(prompt_name=prompt_name, truncate=truncate, truncation_side=truncation_side, param=param)
    tokenized = core.encoder.encode(texts, options)
    future = core.submit(tokenized, [with_updates({"token_embed": params}, pooler)] * len(tokenized))

    def assemble(answer: Answer) -> Answers[npt.NDArray[np.float32]]:
        return Answers(answer.arrays("token_embed"), usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)

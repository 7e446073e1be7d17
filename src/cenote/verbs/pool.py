"""`engine.pool`: the raw door to every task."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending, usage
from cenote.errors import InputError
from cenote.outputs import Answers, SparseVector
from cenote.params import PoolingParams, Task, TaskParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.options import EncodeOptions, TruncationSide
from cenote.text.tokenized import TokenizedText

Pooled = npt.NDArray[np.generic] | SparseVector


def pool(
    core: Core,
    texts: Texts,
    task: Task,
    params: PoolingParams | Many[PoolingParams] | None = None,
    *,
    truncate: bool = False,
    truncation_side: TruncationSide | None = None,
    max_tokens: int | None = None,
    add_special_tokens: bool = True,
    param: str = "texts",
) -> Pending[Answers[Pooled]]:
    """Pool `texts` for `task` without prompts, markers or expansion: one array for each text.

    `params` are one `PoolingParams` for all texts or one for each. A text over the limit, which `max_tokens` lowers, is
    refused unless `truncate` allows to cut it at `truncation_side`. Without `add_special_tokens` those of the tokenizer
    are left out. Sparse tasks give a `SparseVector` for each text.
    """
    each = [params] if isinstance(params, PoolingParams) else list(params or [PoolingParams()])
    each = [replace(one, task=task) for one in each]
    for one in each:
        core.check(one)
    options = EncodeOptions(
        raw=True,
        truncate=truncate,
        truncation_side=truncation_side,
        max_length=max_tokens,
        add_special_tokens=add_special_tokens,
        param=param,
    )
    tokenized = core.encoder.encode(texts, options)
    future = core.submit(tokenized, _for_each(core, each, tokenized))

    def assemble(answer: Answer) -> Answers[Pooled]:
        return Answers([results[task] for results in answer.results], usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)


def _for_each(core: Core, params: list[PoolingParams], texts: list[TokenizedText]) -> list[TaskParams]:
    if len(params) == 1:
        return core.task_params(params, texts)
    if len(params) != len(texts):
        raise InputError(
            f"{len(params)} params for {len(texts)} texts: give one for all or one for each", param="params"
        )
    return [core.task_params([one], [text])[0] for one, text in zip(params, texts, strict=True)]

"""`engine.embed_chunks`: one vector for each piece of a text, all of them read in one context (late chunking)."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending
from cenote.errors import InputError
from cenote.outputs import Answers, Chunks, Usage
from cenote.params import InputType, PoolingParams, TaskParams
from cenote.runtime.request import Answer
from cenote.text.options import EncodeOptions
from cenote.text.piece_reader import PieceCut, PiecedTexts
from cenote.text.pieces import PieceContext, PiecedText, Spans

LongContexts = Literal["chunk", "error"]


def embed_chunks(
    core: Core,
    texts: PiecedTexts,
    chunks: Spans | Many[Spans] | None = None,
    chunk_size: int | None = None,
    *,
    input_type: InputType | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    long_texts: LongContexts = "chunk",
    param: str = "texts",
) -> Pending[Answers[Chunks]]:
    """Embed the pieces of each text: the model reads the whole text, then each piece is the mean of its own tokens.

    A text is a string with `chunks`, pairs `(start, end)` of its characters, or with `chunk_size` in tokens; or, with
    neither, a list of its pieces. `chunks` is one list of pairs for one string, else a list of lists. Special tokens
    and the prompt belong to no piece. Returns a `Chunks` for each text. A text over the limit is read in several
    contexts, split between pieces, or refused (`long_texts="error"`). Raises `InputError` that names what is wrong, and
    for a model that does not pool by the mean.
    """
    if long_texts not in ("chunk", "error"):
        raise InputError(
            f"long_texts must be chunk or error, not {long_texts!r}: a piece that is cut off has no vector",
            param="long_texts",
        )
    params = PoolingParams(task="embed", dimensions=dimensions, use_activation=normalize)
    core.check(replace(params, segments=((0, 1),)))
    options = EncodeOptions(input_type=input_type, prompt_name=prompt_name, prompt=prompt, param=param)
    cut = PieceCut(chunks=chunks, chunk_size=chunk_size)
    pieced = core.encoder.encode_pieces(texts, cut, options, split=long_texts == "chunk")
    contexts = [context for text in pieced for context in text.contexts]
    future = core.submit([context.sequence for context in contexts], [_task_params(core, params, c) for c in contexts])
    bounds = list(pairwise(accumulate((len(text.contexts) for text in pieced), initial=0)))

    def assemble(answer: Answer) -> Answers[Chunks]:
        rows = answer.arrays("embed")
        found = [_chunks(text, rows[start:stop]) for text, (start, stop) in zip(pieced, bounds, strict=True)]
        return Answers(found, _usage(pieced, answer))

    return Pending(future=future, assemble=assemble)


def _task_params(core: Core, params: PoolingParams, context: PieceContext) -> TaskParams:
    return core.task_params([replace(params, segments=context.segments)], [context.sequence])[0]


def _chunks(text: PiecedText, rows: list[npt.NDArray[np.float32]]) -> Chunks:
    return Chunks(
        vectors=np.concatenate(rows),
        spans=[(start, end) for start, end in text.characters.tolist()],
        contexts=[number for number, context in enumerate(text.contexts) for _ in context.segments],
    )


def _usage(texts: list[PiecedText], answer: Answer) -> Usage:
    return Usage(
        num_tokens=[sum(len(context.sequence) for context in text.contexts) for text in texts],
        truncated=[False] * len(texts),
        queue_seconds=answer.queue_seconds,
        inference_seconds=answer.inference_seconds,
    )

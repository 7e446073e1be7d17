"""`engine.token_classify`: the labelled spans of each text, in characters of the caller's own string."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending, usage
from cenote.errors import InputError
from cenote.outputs import Answers, Span
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.text.options import EncodeOptions
from cenote.text.tokenized import TokenizedText

Aggregation = Literal["none", "simple"]
OUTSIDE = "O"
"""The label of tokens that belong to nothing; they give no span."""


def token_classify(
    core: Core,
    texts: str | Many[str],
    *,
    aggregation: Aggregation = "simple",
    truncate: bool = True,
    param: str = "texts",
) -> Pending[Answers[list[Span]]]:
    """Find the labelled spans of each text, in their order.

    With `aggregation="simple"` neighbouring tokens of one entity become one span: a `B-` tag begins a new one, an `I-`
    tag of the same entity goes on, and the score is the mean of the tokens'. `"none"` gives a span for each token.
    Tokens labelled `O` give none. Source: the token classification pipeline of transformers.
    """
    if aggregation not in get_args(Aggregation):
        raise InputError(f"aggregation must be none or simple, not {aggregation!r}", param="aggregation")
    params = PoolingParams(task="token_classify")
    core.check(params)
    strings = [texts] if isinstance(texts, str) else texts
    tokenized = core.encoder.encode(strings, EncodeOptions(offsets=True, truncate=truncate, param=param))
    if any(text.offsets is None for text in tokenized):
        raise InputError("spans need strings; for token ids use engine.pool", param=param)
    future = core.submit(tokenized, core.task_params([params], tokenized))
    assert core.spec.token_classify is not None
    labels = core.spec.token_classify.labels

    def assemble(answer: Answer) -> Answers[list[Span]]:
        found = [
            _spans(string, text, rows, labels, aggregation)
            for string, text, rows in zip(strings, tokenized, answer.arrays("token_classify"), strict=True)
        ]
        return Answers(found, usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)


def _spans(
    string: str, text: TokenizedText, rows: npt.NDArray[Any], labels: Many[str], aggregation: Aggregation
) -> list[Span]:
    assert text.offsets is not None
    tokens = [
        _span(string, labels[column], float(row[column]), (start, end))
        for row, column, (start, end) in zip(rows, np.argmax(rows, axis=1), text.offsets.tolist(), strict=True)
        if start >= 0
    ]
    if aggregation == "none":
        return [token for token in tokens if token.label != OUTSIDE]
    groups: list[list[Span]] = []
    for token in tokens:
        if groups and _goes_on(groups[-1][-1].label, token.label):
            groups[-1].append(token)
        else:
            groups.append([token])
    return [_joined(string, group) for group in groups if group[0].label != OUTSIDE]


def _goes_on(before: str, label: str) -> bool:
    return _entity(before) == _entity(label) and not label.startswith("B-")


def _entity(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _joined(string: str, group: list[Span]) -> Span:
    score = float(np.mean([token.score for token in group]))
    return _span(string, _entity(group[0].label), score, (group[0].start, group[-1].end))


def _span(string: str, label: str, score: float, place: tuple[int, int]) -> Span:
    start, end = place
    return Span(label=label, score=score, start=start, end=end, text=string[start:end])

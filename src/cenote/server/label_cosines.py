"""Labels by an embedding model: each text's cosine with the text of each label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cenote.engine import AsyncEngine
from cenote.errors import InputError
from cenote.outputs import Answers, Classification
from cenote.server.embed_request import EmbedRequest
from cenote.server.embedding import prompt_of


async def classify_by_cosine(engine: AsyncEngine, request: EmbedRequest, labels: list[str]) -> Answers[Classification]:
    """Return each text's cosine with each label, texts and labels embedded together as texts to be classified.

    `usage` has the tokens of the labels in an entry of their own.
    """
    texts = _strings(request.texts, request.texts_param)
    if not labels or len(set(labels)) < len(labels):
        raise InputError("labels must be a list of different labels, at least one", param="labels")
    _, prompt_name = prompt_of(request, engine.info)
    vectors = await engine.embed([*texts, *labels], prompt_name=prompt_name, normalize=True, param=request.texts_param)
    cosines = np.asarray(vectors[: len(texts)]) @ np.asarray(vectors[len(texts) :]).T
    found = [_best(labels, row.tolist()) for row in cosines]
    assert vectors.usage is not None
    num_tokens, truncated = vectors.usage.num_tokens, vectors.usage.truncated
    usage = replace(
        vectors.usage,
        num_tokens=[*num_tokens[: len(texts)], sum(num_tokens[len(texts) :])],
        truncated=[*truncated[: len(texts)], any(truncated[len(texts) :])],
    )
    return Answers(found, usage)


def _strings(texts: Any, param: str) -> list[str]:
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts:
        raise InputError(f"{param} must be a string or a list of strings, at least one", param=param)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{param}[{index}] must be a string", param=param, index=index)
    return texts


def _best(labels: list[str], cosines: list[float]) -> Classification:
    scores = dict(zip(labels, cosines, strict=True))
    label = max(scores, key=scores.__getitem__)
    return Classification(label=label, score=scores[label], scores=scores)

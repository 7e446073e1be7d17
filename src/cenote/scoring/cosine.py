"""Any embedding model: the cosine of the query's and the document's vector."""

from __future__ import annotations

import numpy as np

from cenote.core import Core, Pending, usage
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.scoring.apart import encode_apart
from cenote.scoring.request import PairScores, ScoreRequest


def score_cosine(core: Core, request: ScoreRequest) -> Pending[PairScores]:
    """Embed queries and documents in one request, each with its own prompt. A zero vector has cosine 0 with all."""
    request.refuse_instruction("cosine")
    queries = encode_apart(core, request, "query")
    documents = encode_apart(core, request, "document")
    texts = [*queries, *documents]
    params = core.task_params([PoolingParams(task="embed", use_activation=False)], texts)
    future = core.submit(texts, params)

    def assemble(answer: Answer) -> PairScores:
        rows = np.stack(answer.arrays("embed")).astype(np.float64)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        left, right = rows[: len(queries)], rows[len(queries) :]
        scores = (left * right).sum(axis=1).astype(np.float32)
        truncated = [text.truncated for text in documents]
        return PairScores(raw=scores, scores=scores, truncated=truncated, usage=usage(texts, answer), kind="cosine")

    return Pending(future=future, assemble=assemble)

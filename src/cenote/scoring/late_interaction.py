"""Multi-vector models: MaxSim of the query's token embeddings with those of each document, on the device."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np

from cenote.core import Core, Pending, usage
from cenote.params import PoolingParams, QueryVectors
from cenote.runtime.chain import chain
from cenote.runtime.request import Answer
from cenote.scoring.apart import encode_apart
from cenote.scoring.request import PairScores, ScoreRequest


def score_late_interaction(core: Core, request: ScoreRequest) -> Pending[PairScores]:
    """Embed the queries, then give their vectors to the documents, of which only scores leave the device."""
    request.refuse_instruction("late_interaction")
    queries = encode_apart(core, request, "query")
    documents = encode_apart(core, request, "document")
    plain = PoolingParams(task="token_embed")

    def score_documents(answer: Answer) -> Future[Answer]:
        vectors = [QueryVectors(np.ascontiguousarray(rows)) for rows in answer.arrays("token_embed")]
        each = [PoolingParams(task="token_embed", query_vectors=vector) for vector in vectors]
        params = [core.task_params([each[request.query_of(i)]], [document])[0] for i, document in enumerate(documents)]
        return core.submit(documents, params)

    future = chain(core.submit(queries, core.task_params([plain], queries)), score_documents)

    def assemble(answer: Answer) -> PairScores:
        scores = np.concatenate(answer.arrays("token_embed")).astype(np.float32)
        return PairScores(
            raw=scores,
            scores=scores,
            truncated=[text.truncated for text in documents],
            usage=usage([*queries, *documents], answer),
            kind="late_interaction",
        )

    return Pending(future=future, assemble=assemble)

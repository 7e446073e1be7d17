"""A listwise reranker (jina-reranker-v3): documents are read in blocks, each of which compares them with each other."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending, usage
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.scoring.request import PairScores, ScoreRequest
from cenote.text.options import PairOptions

Vectors = npt.NDArray[np.float64]


def score_listwise(core: Core, request: ScoreRequest) -> Pending[PairScores]:
    """Score the documents of one query together, those of several queries each on its own."""
    options = PairOptions(
        instruction=request.instruction,
        max_query_tokens=request.max_query_tokens,
        max_document_tokens=request.max_document_tokens,
        truncate=request.truncate,
        truncation_side=request.truncation_side,
        query_param=request.query_param,
        document_param=request.document_param,
    )
    assert core.spec.listwise is not None
    encoder = core.encoder.listwise(core.spec.listwise, request.max_tokens)
    groups = _groups(request)
    read = [encoder.encode(query, documents, options) for query, documents in groups]
    blocks = [block.sequence for found, _ in read for block in found]
    future = core.submit(blocks, core.task_params([PoolingParams(task="token_embed")], blocks))

    def assemble(answer: Answer) -> PairScores:
        rows = iter(answer.arrays("token_embed"))
        scores = np.concatenate([_scores([next(rows) for _ in found]) for found, _ in read])
        truncated = list(itertools.chain.from_iterable(cut for _, cut in read))
        return PairScores(raw=scores, scores=scores, truncated=truncated, usage=usage(blocks, answer), kind="listwise")

    return Pending(future=future, assemble=assemble)


def _groups(request: ScoreRequest) -> list[tuple[str, list[str]]]:
    if len(request.queries) == 1:
        return [(request.queries[0], request.documents)]
    return [(query, [document]) for query, document in zip(request.queries, request.documents, strict=True)]


def _scores(blocks: list[npt.NDArray[np.floating]]) -> npt.NDArray[np.float32]:
    """Return the cosine of each document's row with the query's, which is the last row of each block.

    The query has a row in every block; their mean is taken, a block weighted by `(1 + its best cosine) / 2`. Source:
    the model's own code.
    """
    documents = [block[:-1].astype(np.float64) for block in blocks]
    queries = np.stack([block[-1] for block in blocks]).astype(np.float64)
    weights = [(1.0 + _cosines(rows, query).max()) / 2.0 for rows, query in zip(documents, queries, strict=True)]
    query = queries[0] if len(blocks) == 1 else np.average(queries, axis=0, weights=weights)
    return _cosines(np.concatenate(documents), query).astype(np.float32)


def _cosines(rows: Vectors, query: Vectors) -> Vectors:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    cosines: Vectors = rows @ query / np.maximum(norms, 1e-12)
    return cosines

"""`engine.score`: the relevance of each document to its query, in the caller's order."""

from __future__ import annotations

from collections.abc import Sequence as Many

from cenote.core import Core, Pending
from cenote.errors import EmptyInputError, InputError
from cenote.outputs import Scores
from cenote.runtime.request import Answer
from cenote.scoring import ScoreRequest, check_positive
from cenote.scoring import score as score_pairs
from cenote.text.options import TruncationSide


def score(
    core: Core,
    queries: str | Many[str],
    documents: str | Many[str],
    *,
    raw_scores: bool = False,
    instruction: str | None = None,
    max_tokens_per_query: int | None = None,
    max_tokens_per_doc: int | None = None,
    max_tokens: int | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
) -> Pending[Scores]:
    """Score pairs: one query with one document, one with each of several, or several with as many documents.

    Returns a float32 array `(n,)` in the order of `documents` that also has `.usage`. Scores are those of `rerank`, as
    are the other arguments.
    Raises `InputError` for other numbers of texts.
    """
    check_positive("max_tokens_per_query", max_tokens_per_query)
    check_positive("max_tokens_per_doc", max_tokens_per_doc)
    check_positive("max_tokens", max_tokens)
    request = ScoreRequest(
        queries=_strings(queries, "queries"),
        documents=_strings(documents, "documents"),
        instruction=instruction,
        max_query_tokens=max_tokens_per_query,
        max_document_tokens=max_tokens_per_doc,
        max_tokens=max_tokens,
        truncate=truncate,
        truncation_side=truncation_side,
        query_param="queries",
    )
    num_queries, num_documents = len(request.queries), len(request.documents)
    if num_queries not in (1, num_documents):
        raise InputError(
            f"{num_queries} queries and {num_documents} documents: pass one query for all, or one for each",
            param="documents",
        )
    pending = score_pairs(core, request)

    def assemble(answer: Answer) -> Scores:
        scored = pending.assemble(answer)
        return Scores.wrap(scored.raw if raw_scores else scored.scores, scored.usage)

    return Pending(future=pending.future, assemble=assemble)


def _strings(texts: object, param: str) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, list | tuple):
        raise InputError(
            f"{param} must be a string or a list of strings, not of type {type(texts).__name__}", param=param
        )
    if not texts:
        raise EmptyInputError(f"{param} is empty: pass at least one text", param=param)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{param}[{index}] must be a string", param=param, index=index)
    return list(texts)

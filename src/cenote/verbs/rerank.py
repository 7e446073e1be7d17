"""`engine.rerank`: documents in the order of their relevance to a query."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenote.core import Core, Pending
from cenote.errors import EmptyInputError, InputError
from cenote.outputs import Ranked, Ranking
from cenote.runtime.request import Answer
from cenote.scoring import PairScores, ScoreRequest, check_positive, score
from cenote.text.options import TruncationSide

Document = str | Mapping[str, Any]
"""A text, or a mapping with a string `text` that comes back as it is."""


def rerank(
    core: Core,
    query: str,
    documents: Many[Document],
    top_n: int | None = None,
    *,
    raw_scores: bool = False,
    instruction: str | None = None,
    max_tokens_per_query: int | None = None,
    max_tokens_per_doc: int | None = None,
    max_tokens: int | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
    threshold: float | None = None,
    return_documents: bool = True,
) -> Pending[Ranking]:
    """Sort `documents` by their relevance to `query`, the best first, documents of equal scores in the caller's order.

    Each of the list has `.index` (its place in `documents`), `.score`, `.document` and `.truncated`; the list has
    `.kind` (how the model scores) and `.usage`. `raw_scores` gives the logits instead of what the checkpoint's
    activation makes of them; the order is that of the logits in any case. `top_n` keeps the first, `threshold` those
    whose score is at least this. `instruction` is for models whose prompt has a place for it. A document that is too
    long for the model is cut at `truncation_side`, or refused where `truncate` is off; one over `max_tokens_per_doc` is
    cut, as is a query over `max_tokens_per_query`; `max_tokens` lowers the model's limit. Raises `InputError` for a bad
    argument and `UnsupportedTaskError` where the model scores no pairs.
    """
    if not isinstance(query, str):
        raise InputError(f"query must be a string, not of type {type(query).__name__}", param="query")
    check_positive("top_n", top_n)
    check_positive("max_tokens_per_query", max_tokens_per_query)
    check_positive("max_tokens_per_doc", max_tokens_per_doc)
    check_positive("max_tokens", max_tokens)
    request = ScoreRequest(
        queries=[query],
        documents=_texts(documents),
        instruction=instruction,
        max_query_tokens=max_tokens_per_query,
        max_document_tokens=max_tokens_per_doc,
        max_tokens=max_tokens,
        truncate=truncate,
        truncation_side=truncation_side,
    )
    pending = score(core, request)
    wanted = _Wanted(documents if return_documents else None, top_n, threshold, raw_scores)

    def assemble(answer: Answer) -> Ranking:
        return wanted.ranking(pending.assemble(answer))

    return Pending(future=pending.future, assemble=assemble)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What of the scored documents the caller wants to see; `documents` is `None` where he knows them."""

    documents: Many[Document] | None
    top_n: int | None
    threshold: float | None
    raw_scores: bool

    def ranking(self, scored: PairScores) -> Ranking:
        shown = scored.raw if self.raw_scores else scored.scores
        order = np.argsort(-scored.raw, kind="stable").tolist()
        if self.threshold is not None:
            order = [index for index in order if shown[index] >= self.threshold]
        entries = [
            Ranked(
                index=index,
                score=float(shown[index]),
                document=None if self.documents is None else self.documents[index],
                truncated=scored.truncated[index],
            )
            for index in order[: self.top_n]
        ]
        return Ranking(entries, scored.usage, scored.kind)


def _texts(documents: object) -> list[str]:
    if not isinstance(documents, list | tuple):
        raise InputError(
            f"documents must be a list of strings, not of type {type(documents).__name__}", param="documents"
        )
    if not documents:
        raise EmptyInputError("documents is empty: pass at least one", param="documents")
    return [_text(document, index) for index, document in enumerate(documents)]


def _text(document: object, index: int) -> str:
    text = document.get("text") if isinstance(document, Mapping) else document
    if not isinstance(text, str):
        raise InputError(
            f"documents[{index}] must be a string or a mapping with a string `text`", param="documents", index=index
        )
    return text

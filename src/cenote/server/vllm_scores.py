"""vLLM's `POST /score` and `POST /rerank`: bodies, answers and handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.errors import InputError
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, cut_length, find_model
from cenote.server.ranking import PairBody, RankBody, rank, results_of
from cenote.server.schemas import Ignored, WholeOrDigits
from cenote.server.vllm_answer import VllmAnswer, answer_head

Texts = SkipValidation[str | list[str]]
_NAMES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""Both sides of the pairs, in the spellings that vLLM takes."""


class VllmScoreBody(PairBody):
    """Pairs: one query with one document, one with each of several, or several with as many documents."""

    queries: Texts | None = Field(None, description="One query, or one for each document.")
    documents: Texts | None = Field(None, description="One document or a list of them.")
    data_1: Texts | None = Field(None, description="Another name of `queries`.")
    data_2: Texts | None = Field(None, description="Another name of `documents`.")
    text_1: Texts | None = Field(None, description="Another name of `queries`.")
    text_2: Texts | None = Field(None, description="Another name of `documents`.")
    items: Texts | None = Field(None, description="Another name of `documents`.")
    user: Ignored = None


class VllmScore(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class VllmScores(VllmAnswer):
    """The pairs in the order of the documents."""

    data: list[VllmScore]


class VllmRankBody(RankBody):
    """A query and the documents that are to be put in order."""

    documents: SkipValidation[list[str]] = Field(description="Strings, or objects with a string `text`.")
    top_n: WholeOrDigits | None = Field(None, ge=0, description="How many of the best to give; 0 gives all.")
    user: Ignored = None


class VllmRanked(BaseModel):
    index: int
    relevance_score: float
    document: dict[str, str]


class VllmRankings(BaseModel):
    """The documents, the most relevant first."""

    id: str
    model: str
    usage: dict[str, int]
    results: list[VllmRanked]


async def score(call: Call) -> Response:
    """Score every pair in one engine call."""
    body: VllmScoreBody = call.body
    name, engine = find_model(call, body.model)
    queries, documents = _sides(body)
    check_number(documents, "documents", call)
    values = await engine.score(
        queries,
        documents,
        raw_scores=body.use_activation is False,
        instruction=body.asked_instruction(),
        max_tokens_per_query=body.max_tokens_per_query or None,
        max_tokens_per_doc=body.max_tokens_per_doc or None,
        max_tokens=cut_length(body.truncate_prompt_tokens, engine.info),
        truncation_side=body.truncation_side,
    )
    assert values.usage is not None
    call.record.add(values.usage)
    data = [{"index": i, "object": "score", "score": value} for i, value in enumerate(values.tolist())]
    return json_response(answer_head("score", name, call, values.usage) | {"data": data})


async def rerank(call: Call) -> Response:
    """Rank documents, which always come back."""
    body: VllmRankBody = call.body
    request = replace(
        body.request(body.documents, body.top_n or None),
        max_tokens_per_query=body.max_tokens_per_query or None,
        max_tokens_per_doc=body.max_tokens_per_doc or None,
    )
    name, ranking = await rank(call, request)
    tokens = ranking.usage.total_tokens
    return json_response(
        {
            "id": f"score-{call.record.request_id}",
            "model": name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results_of(ranking, body.documents),
        }
    )


def _sides(body: VllmScoreBody) -> tuple[Any, Any]:
    """Return the queries and the documents by whichever names they came."""
    given = {name for pair in _NAMES for name in pair if getattr(body, name) is not None}
    for first, second in _NAMES:
        if {first, second} <= given:
            _refuse_others(given - {first, second})
            return getattr(body, first), getattr(body, second)
    for first, second in _NAMES:
        if given & {first, second}:
            missing = second if first in given else first
            raise InputError(f"`{missing}` is required", param=missing)
    raise InputError("`queries` and `documents` are required", param="queries")


def _refuse_others(names: set[str]) -> None:
    for name in sorted(names):
        raise InputError(f"`{name}` is another name of texts that are there already: leave it out", param=name)

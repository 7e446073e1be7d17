"""vLLM's `POST /score` and `POST /rerank`: bodies, answers and handlers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.errors import InputError
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, find_model
from cenote.server.ranking import RankRequest, rank, results_of
from cenote.server.schemas import Ignored, ModelName, RequestBody
from cenote.server.vllm_answer import VllmAnswer, answer_head

Texts = SkipValidation[str | list[str]]
_NAMES = (("queries", "documents"), ("data_1", "data_2"), ("text_1", "text_2"))
"""Both sides of the pairs, in the three spellings that vLLM takes."""


class VllmScoreBody(RequestBody):
    """Pairs: one query with one document, one with each of several, or several with as many documents."""

    queries: Texts | None = Field(None, description="One query, or one for each document.")
    documents: Texts | None = Field(None, description="One document or a list of them.")
    data_1: Texts | None = Field(None, description="Another name of `queries`.")
    data_2: Texts | None = Field(None, description="Another name of `documents`.")
    text_1: Texts | None = Field(None, description="Another name of `queries`.")
    text_2: Texts | None = Field(None, description="Another name of `documents`.")
    model: ModelName = None
    use_activation: bool | None = Field(None, description="false gives logits.")
    instruction: str | None = Field(None, description="For rerankers whose prompt has a place for it.")
    user: Ignored = None


class VllmScore(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class VllmScores(VllmAnswer):
    """The pairs in the order of the documents."""

    data: list[VllmScore]


class VllmRankBody(RequestBody):
    """A query and the documents that are to be put in order."""

    query: str = Field(description="What the documents should be about.")
    documents: SkipValidation[list[str]] = Field(description="Strings, or objects with a string `text`.")
    model: ModelName = None
    top_n: int | None = Field(None, ge=0, description="How many of the best to give; 0 gives all.")
    max_tokens_per_doc: int | None = Field(None, ge=0, description="Cut each document to so many tokens; 0 is off.")
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
        queries, documents, raw_scores=body.use_activation is False, instruction=body.instruction
    )
    assert values.usage is not None
    call.record.add(values.usage)
    data = [{"index": i, "object": "score", "score": value} for i, value in enumerate(values.tolist())]
    return json_response(answer_head("score", name, call, values.usage) | {"data": data})


async def rerank(call: Call) -> Response:
    """Rank documents, which always come back."""
    body: VllmRankBody = call.body
    request = RankRequest(
        model=body.model,
        query=body.query,
        documents=body.documents,
        top_n=body.top_n or None,
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
    for first, second in _NAMES:
        queries, documents = getattr(body, first), getattr(body, second)
        if queries is not None and documents is not None:
            return queries, documents
        if queries is not None or documents is not None:
            missing = first if queries is None else second
            raise InputError(f"`{missing}` is required", param=missing)
    raise InputError("`queries` and `documents` are required", param="queries")

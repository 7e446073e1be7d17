"""Voyage's `POST /v1/rerank`: body, answer and handler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.server.dialect import Call
from cenote.server.ranking import RankBody, rank
from cenote.server.schemas import TopN, TotalUsage, Truncate, agreed
from cenote.server.voyage_vectors import voyage_list
from cenote.text.unicode import scalar_text


class VoyageRerankBody(RankBody):
    """A query and its documents."""

    documents: list[str]
    top_k: TopN = None
    truncation: Truncate = None
    return_documents: bool | None = Field(None, description="Give the documents back; by default not.")


class VoyageRanked(BaseModel):
    index: int
    relevance_score: float
    document: str | None = None


class VoyageRerankAnswer(BaseModel):
    """The documents, the best one first."""

    object: Literal["list"] = "list"
    data: list[VoyageRanked]
    model: str
    usage: TotalUsage


async def rerank(call: Call) -> Response:
    """Rank documents, which come back as strings where they are asked for."""
    body: VoyageRerankBody = call.body
    truncate = agreed(truncation=body.truncation, truncate=body.truncate)
    request = replace(body.request(body.documents, body.top_k), truncate=truncate)
    name, ranking = await rank(call, request)
    items: list[dict[str, Any]] = [{"index": each.index, "relevance_score": each.score} for each in ranking]
    if body.return_documents:
        for item in items:
            item["document"] = scalar_text(body.documents[item["index"]])
    return voyage_list(call, items, name, ranking.usage.total_tokens)

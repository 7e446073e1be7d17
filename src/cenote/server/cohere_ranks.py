"""Cohere's `POST /v1/rerank` and `POST /v2/rerank`: body, answer and handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import usage_of
from cenote.server.ranking import RankBody, rank, results_of
from cenote.server.schemas import IgnoredNumber, RankedDocument, Refused, TopN

DOCUMENTS_OF_A_SEARCH_UNIT = 100


class CohereRerankBody(RankBody):
    """A query and its documents. Fields of one version of the API are read in the other, too."""

    documents: list[str | dict[str, Any]] = Field(description="Strings, or objects with a string `text`.")
    top_n: TopN = None
    rank_fields: list[str] | None = Field(None, description="The fields of objects that are read, one a line.")
    return_documents: bool | None = Field(None, description="Whether the documents come back.")
    max_chunks_per_doc: Annotated[
        Any, Refused("may only be 1: a long document is cut, never read in chunks", (1, 1.0, "1"))
    ] = None
    priority: IgnoredNumber = None


class CohereRerankAnswer(BaseModel):
    """The documents, the best one first. `model` and `usage` are there on the bare paths only."""

    id: str
    results: list[RankedDocument]
    meta: dict[str, Any]
    model: str | None = None
    usage: dict[str, int] | None = None


async def rerank_v1(call: Call) -> Response:
    """Rank documents, which come back where they are asked for."""
    return await _ranked(call, "1", shows_documents=call.body.return_documents is True)


async def rerank_v2(call: Call) -> Response:
    """Rank documents, which never come back."""
    return await _ranked(call, "2", shows_documents=False)


async def _ranked(call: Call, version: str, *, shows_documents: bool) -> Response:
    body: CohereRerankBody = call.body
    request = replace(body.request(body.documents, body.top_n), fields=body.rank_fields)
    name, ranking = await rank(call, request)
    if not call.exact:
        shows_documents = body.return_documents is not False
    search_units = -(-len(body.documents) // DOCUMENTS_OF_A_SEARCH_UNIT)
    answer = {
        "id": call.record.request_id,
        "results": results_of(ranking, body.documents if shows_documents else None),
        "meta": {"api_version": {"version": version}, "billed_units": {"search_units": search_units}},
    }
    if not call.exact:
        answer |= {"model": name, "usage": usage_of(ranking.usage.total_tokens)}
    return json_response(answer)

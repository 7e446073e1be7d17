"""One rerank request, as every dialect asks the engine for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cenote.errors import InputError
from cenote.outputs import Ranking
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, find_model
from cenote.text.options import TruncationSide
from cenote.text.unicode import scalar_text

Document = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """A query and its documents: strings, or objects with a string `text`, or with `fields` that are read in turn."""

    model: str | None
    query: str
    documents: list[Any]
    top_n: int | None = None
    max_tokens_per_doc: int | None = None
    truncate: bool | None = None
    truncation_side: TruncationSide | None = None
    raw_scores: bool = False
    fields: Sequence[str] | None = None


async def rank(call: Call, request: RankRequest) -> tuple[str, Ranking]:
    """Rank the documents in one engine call; return the served model's name and the ranking, without documents."""
    name, engine = find_model(call, request.model)
    check_number(request.documents, "documents", call)
    ranking = await engine.rerank(
        request.query,
        _read(request.documents, request.fields),
        request.top_n,
        max_tokens_per_doc=request.max_tokens_per_doc,
        raw_scores=request.raw_scores,
        truncate=request.truncate is not False,
        truncation_side=request.truncation_side,
        return_documents=False,
    )
    call.record.add(ranking.usage)
    return name, ranking


def results_of(ranking: Ranking, documents: Sequence[Document] | None) -> list[dict[str, Any]]:
    """Return Cohere's and Jina's `results`, each with its document as an object where `documents` are given."""
    results: list[dict[str, Any]] = [{"index": each.index, "relevance_score": each.score} for each in ranking]
    if documents is not None:
        for result in results:
            result["document"] = _shown(documents[result["index"]])
    return results


def _shown(document: Document) -> dict[str, str]:
    """Return a document as an object of strings that JSON can write."""
    if isinstance(document, str):
        return {"text": scalar_text(document)}
    return {scalar_text(key): scalar_text(value) for key, value in document.items() if isinstance(value, str)}


def _read(documents: list[Any], fields: Sequence[str] | None) -> list[Any]:
    if not fields:
        return documents
    return [_joined(document, fields, index) for index, document in enumerate(documents)]


def _joined(document: Any, fields: Sequence[str], index: int) -> Any:
    """Return the values of an object's `fields`, one a line."""
    if not isinstance(document, Mapping):
        return document
    values = [document[name] for name in fields if isinstance(document.get(name), str)]
    if not values:
        raise InputError(
            f"documents[{index}] has no string in any of the rank_fields {', '.join(fields)[:200]}",
            param="documents",
            index=index,
        )
    return "\n".join(values)

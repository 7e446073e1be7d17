"""Jina's `POST /v1/rerank` and `POST /v1/classify`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from cenote.outputs import Classification
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedRequest
from cenote.server.embedding import prepare
from cenote.server.jina_texts import JinaTexts, texts_of
from cenote.server.label_cosines import classify_by_cosine
from cenote.server.ranking import RankBody, rank, results_of
from cenote.server.schemas import ModelName, RankedDocument, Refused, RequestBody, TopN, TotalUsage
from cenote.text.unicode import scalar_text


class JinaRerankBody(RankBody):
    """A query and its documents."""

    documents: list[str | dict[str, Any]] = Field(description="Strings, or objects with a string `text`.")
    top_n: TopN = None
    return_documents: bool | None = Field(None, description="Give the documents back (default), or not.")


class JinaClassifyBody(RequestBody):
    """Texts to label."""

    input: JinaTexts
    model: ModelName = None
    labels: list[str] | None = Field(None, description="Labels of your own; by default those of the checkpoint.")
    classifier_id: Annotated[Any, Refused("is not known here: leave it out, or give `labels`")] = None


class JinaRerankAnswer(BaseModel):
    """The documents, the best one first."""

    model: str
    usage: TotalUsage
    results: list[RankedDocument]


class JinaLabel(BaseModel):
    label: str
    score: float


class JinaClassification(BaseModel):
    """The labels of one text, the best one as `prediction`."""

    object: Literal["classification"] = "classification"
    index: int
    prediction: str
    score: float
    predictions: list[JinaLabel]


class JinaClassifyAnswer(BaseModel):
    """The labels of each text in the order of `input`."""

    data: list[JinaClassification]
    model: str
    usage: TotalUsage


async def rerank(call: Call) -> Response:
    """Rank documents, which come back unless they are not wanted."""
    body: JinaRerankBody = call.body
    name, ranking = await rank(call, body.request(body.documents, body.top_n))
    results = results_of(ranking, None if body.return_documents is False else body.documents)
    return json_response({"model": name, "usage": {"total_tokens": ranking.usage.total_tokens}, "results": results})


async def classify(call: Call) -> Response:
    """Label texts: by the checkpoint's own labels, by entailment, or by the cosine with labels of the caller's own."""
    body: JinaClassifyBody = call.body
    request = EmbedRequest(model=body.model, texts=texts_of(body.input), encodings=(), input_type="classification")
    name, engine = prepare(call, request)
    if body.labels is None:
        found = await engine.classify(request.texts, param="input")
    elif "classify" in engine.info.tasks:
        found = await engine.zero_shot(request.texts, body.labels, param="input")
    else:
        found = await classify_by_cosine(engine, request, body.labels)
    call.record.add(found.usage)
    items = [_classified(index, each) for index, each in enumerate(found)]
    return json_response({"data": items, "model": name, "usage": {"total_tokens": found.usage.total_tokens}})


def _classified(index: int, found: Classification) -> dict[str, Any]:
    scores = [{"label": scalar_text(label), "score": score} for label, score in found.scores.items()]
    best = {"prediction": scalar_text(found.label), "score": found.score}
    return {"object": "classification", "index": index, **best, "predictions": scores}

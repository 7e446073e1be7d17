"""TEI's `POST /predict` and `POST /rerank`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field, RootModel, SkipValidation
from starlette.responses import Response

from cenote.engine import AsyncEngine
from cenote.errors import EmptyInputError, InputError
from cenote.outputs import Classification
from cenote.scoring import reads_pairs
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embedding import check_number, find_model
from cenote.server.ranking import RankBody, rank
from cenote.server.schemas import agreed
from cenote.server.served import offers
from cenote.server.tei_request import Direction, TeiBody
from cenote.text.unicode import scalar_text


class TeiPredictBody(TeiBody):
    """Texts or pairs of texts to label."""

    inputs: SkipValidation[str | list[str] | list[list[str]]] = Field(
        description="One text, a pair `[a, b]`, or a batch: a list of `[a]` and `[a, b]`."
    )
    raw_scores: bool | None = Field(
        None, description="Give logits, or probabilities; by default what the checkpoint asks for."
    )


class TeiRerankBody(RankBody):
    """A query and the texts that are to be put in order."""

    texts: SkipValidation[list[str]] = Field(description="The texts.")
    truncation_direction: Direction = None
    return_text: bool | None = Field(None, description="Give the texts back.")


class TeiPrediction(BaseModel):
    score: float
    label: str


class TeiPredictions(RootModel[list[TeiPrediction] | list[list[TeiPrediction]]]):
    """The labels of one text, the best one first; of a batch one such list for each text."""


class TeiRank(BaseModel):
    index: int
    text: str | None = None
    score: float


class TeiRanks(RootModel[list[TeiRank]]):
    """The texts, the best one first."""


async def predict(call: Call) -> Response:
    """Label one text, one pair, or each of a batch."""
    body: TeiPredictBody = call.body
    _, engine = find_model(call, call.models.fitting(body.model, _has_labels, offers("classify")))
    is_batch, texts = _texts(body.inputs)
    check_number(texts, "inputs", call)
    found = await engine.classify(
        texts,
        raw_scores=body.raw_scores,
        truncate=body.truncate is not False,
        truncation_side=body.truncation_direction,
        param="inputs",
    )
    call.record.add(found.usage)
    answers = [_predictions(each) for each in found]
    return json_response(answers if is_batch else answers[0])


async def rerank(call: Call) -> Response:
    """Rank texts, which come back where they are asked for."""
    body: TeiRerankBody = call.body
    request = replace(
        body.request(body.texts),
        model=call.models.fitting(body.model, _reads_pairs, offers("token_embed"), offers("embed")),
        truncation_side=agreed(truncation_direction=body.truncation_direction, truncation_side=body.truncation_side),
    )
    _, ranking = await rank(call, request)
    ranks: list[dict[str, Any]] = [{"index": each.index, "score": each.score} for each in ranking]
    if body.return_text:
        for each in ranks:
            each["text"] = scalar_text(body.texts[each["index"]])
    return json_response(ranks)


def _has_labels(engine: AsyncEngine) -> bool:
    return engine.spec.classify is not None and engine.spec.classify.num_labels > 1


def _reads_pairs(engine: AsyncEngine) -> bool:
    return reads_pairs(engine.spec)


def _texts(inputs: Any) -> tuple[bool, Any]:
    """Return whether `inputs` are a batch, and its texts and pairs as the engine takes them."""
    if not isinstance(inputs, list):
        return False, _strings([inputs], "inputs")[0]
    if not inputs:
        raise EmptyInputError("inputs is empty: pass at least one text", param="inputs")
    if isinstance(inputs[0], str):
        return False, [_item(inputs, "inputs")]
    return True, [_item(item, f"inputs[{index}]") for index, item in enumerate(inputs)]


def _item(item: Any, place: str) -> str | tuple[str, str]:
    if not isinstance(item, list) or len(item) not in (1, 2):
        raise InputError(f"{place} must be a list of one text or of two", param="inputs")
    strings = _strings(item, place)
    return strings[0] if len(strings) == 1 else (strings[0], strings[1])


def _strings(items: list[Any], place: str) -> list[str]:
    for item in items:
        if not isinstance(item, str):
            raise InputError(f"{place} must be a string, a pair of strings, or a batch of those", param="inputs")
    return items


def _predictions(found: Classification) -> list[dict[str, Any]]:
    best_first = sorted(found.scores.items(), key=lambda pair: -pair[1])
    return [{"score": score, "label": scalar_text(label)} for label, score in best_first]

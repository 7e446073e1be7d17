"""TEI's `POST /embed`, `POST /embed_all`, `POST /embed_sparse` and `POST /similarity`."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, Field, RootModel, SkipValidation
from starlette.responses import Response

from cenote.errors import EmptyInputError, InputError
from cenote.outputs import SparseVector
from cenote.params import Task
from cenote.server.answers import json_response
from cenote.server.dialect import Call
from cenote.server.embed_request import EmbedRequest, MultiVectorOptions
from cenote.server.embedding import embed, encode, prepare
from cenote.server.schemas import Dimensions, ModelName, PromptName, RequestBody, TextsOrIds, Truncate
from cenote.server.served import offers
from cenote.server.tei_request import Direction, TeiBody


class TeiTexts(TeiBody):
    """Texts to embed, and the prompt before each."""

    inputs: TextsOrIds
    prompt_name: PromptName = None


class TeiEmbedBody(TeiTexts):
    """Texts to embed."""

    normalize: bool | None = Field(None, description="L2-normalise (default), or not.")
    dimensions: Dimensions = None


class TeiEmbedAllBody(TeiTexts):
    """Texts of which every token is to have a vector."""


class TeiEmbedSparseBody(TeiTexts):
    """Texts to embed as sparse vectors."""


class TeiSimilarityInput(RequestBody):
    source_sentence: str
    sentences: SkipValidation[list[str]]


class TeiSimilarityParameters(RequestBody):
    truncate: Truncate = None
    truncation_direction: Direction = None
    prompt_name: PromptName = None


class TeiSimilarityBody(RequestBody):
    """One sentence, and those that it is compared with. `model` goes beyond TEI."""

    inputs: TeiSimilarityInput = Field(description="`source_sentence`, and the `sentences` to compare it with.")
    parameters: TeiSimilarityParameters | None = Field(
        None, description="`truncate`, `truncation_direction` and `prompt_name`."
    )
    model: ModelName = None


class TeiSparseValue(BaseModel):
    index: int
    value: float


class TeiVectors(RootModel[list[list[float]]]):
    """One vector for each text."""


class TeiTokenVectors(RootModel[list[list[list[float]]]]):
    """The vectors of each text's tokens."""


class TeiSparseVectors(RootModel[list[list[TeiSparseValue]]]):
    """The terms of each text that are not zero."""


class TeiSimilarities(RootModel[list[float]]):
    """The cosine of each sentence with the source sentence."""


async def embed_dense(call: Call) -> Response:
    """Embed every text of `inputs`."""
    body: TeiEmbedBody = call.body
    request = _request(call, body, "embed", dimensions=body.dimensions, normalize=body.normalize is not False)
    _, values = await embed(call, request)
    return json_response(np.asarray(values))


async def embed_all(call: Call) -> Response:
    """Give every token of `inputs` its vector."""
    body: TeiEmbedAllBody = call.body
    request = _request(call, body, "embed")
    _, engine = prepare(call, request)
    found = await engine.embed_all(
        body.inputs,
        prompt_name=body.prompt_name,
        truncate=body.truncate is not False,
        truncation_side=body.truncation_direction,
        param="inputs",
    )
    call.record.add(found.usage)
    return json_response(list(found))


async def embed_sparse(call: Call) -> Response:
    """Embed every text of `inputs` as a sparse vector."""
    body: TeiEmbedSparseBody = call.body
    _, found = await encode(call, _request(call, body, "embed_sparse"), ["sparse"], MultiVectorOptions())
    return json_response([_terms(vector) for vector in found.sparse or ()])


async def similarity(call: Call) -> Response:
    """Compare sentences with one by the cosine of their embeddings."""
    body: TeiSimilarityBody = call.body
    options = body.parameters or TeiSimilarityParameters()
    sentences = body.inputs.sentences
    if not isinstance(sentences, list):
        raise InputError("inputs.sentences must be a list of strings", param="inputs")
    if not sentences:
        raise EmptyInputError("inputs.sentences is empty: pass at least one", param="inputs")
    request = EmbedRequest(
        model=call.models.fitting(body.model, offers("embed")),
        texts=[body.inputs.source_sentence, *sentences],
        texts_param="inputs",
        encodings=(),
        prompt_name=options.prompt_name,
        normalize=True,
        truncate=options.truncate,
        truncation_side=options.truncation_direction,
    )
    _, values = await embed(call, request)
    vectors = np.asarray(values)
    return json_response(vectors[1:] @ vectors[0])


def _request(
    call: Call, body: TeiTexts, task: Task, *, dimensions: int | None = None, normalize: bool | None = None
) -> EmbedRequest:
    return EmbedRequest(
        model=call.models.fitting(body.model, offers(task)),
        texts=body.inputs,
        texts_param="inputs",
        encodings=(),
        prompt_name=body.prompt_name,
        dimensions=dimensions,
        normalize=normalize,
        truncate=body.truncate,
        truncation_side=body.truncation_direction,
    )


def _terms(vector: SparseVector) -> list[dict[str, Any]]:
    pairs = zip(vector.indices.tolist(), vector.values.tolist(), strict=True)
    return [{"index": index, "value": value} for index, value in pairs]

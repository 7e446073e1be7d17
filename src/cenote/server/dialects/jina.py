"""Jina's API: `POST /v1/embeddings`, `POST /v1/multi-vector`, `POST /v1/rerank`, `POST /v1/classify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SkipValidation
from starlette.responses import Response

from cenote.errors import InputError
from cenote.outputs import Classification, Float32Array, Usage
from cenote.server.answers import json_response
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.embedding import (
    EmbedRequest,
    MultiVectorOptions,
    embed,
    embed_pieces,
    embedding_items,
    encode,
    prepare,
    usage_of,
)
from cenote.server.encodings import Encoding, EncodingName
from cenote.server.failures import Failure
from cenote.server.label_cosines import classify_by_cosine
from cenote.server.ranking import RankRequest, rank, results_of
from cenote.server.schemas import DetailBody, Embedding, RankedDocument, RequestBody, TotalUsage
from cenote.server.schemas import Usage as UsageBody
from cenote.text.unicode import scalar_text

Model = Annotated[str | None, Field(description="A served model; may be left out where there is only one.")]
Texts = Annotated[
    SkipValidation[str | list[str | dict[str, Any]]],
    Field(description="One text or a list; an item may be an object with a string `text`."),
]
EncodingNames = EncodingName | list[EncodingName]


class JinaEmbeddingsBody(RequestBody):
    """Texts to embed. The last two fields go beyond Jina's."""

    input: Texts
    model: Model = None
    task: str | None = Field(
        None,
        description="`retrieval.query` or `retrieval.passage`; another use by the checkpoint's prompt of that name.",
    )
    dimensions: int | None = Field(None, description="Keep this many first values (matryoshka).")
    late_chunking: bool | None = Field(None, description="Read all texts as one, and embed each in that context.")
    embedding_type: EncodingNames | None = Field(None, description="One encoding, or several at once.")
    encoding_type: EncodingNames | None = Field(None, description="The same, as LlamaIndex writes it.")
    encoding_format: EncodingName | None = Field(None, description="The same, as OpenAI's clients write it.")
    normalized: bool | None = Field(None, description="L2-normalise or not; by default as the checkpoint says.")
    truncate: bool | None = Field(None, description="Cut texts over the limit (default), or refuse them.")
    input_type: str | None = Field(None, description="Beyond Jina: the same as `task`, which goes first.")
    prompt_name: str | None = Field(None, description="Beyond Jina: the checkpoint's prompt of this name.")


class JinaMultiVectorBody(RequestBody):
    """Texts to embed, one vector for each token."""

    input: Texts
    model: Model = None
    input_type: str | None = Field(None, description="`query` or `document`.")
    embedding_type: EncodingNames | None = Field(None, description="One encoding, or several at once.")
    dimensions: int | None = Field(None, description="Keep this many first values of each vector.")
    truncate: bool | None = Field(None, description="Cut texts over the limit (default), or refuse them.")
    prompt_name: str | None = Field(None, description="Beyond Jina: the checkpoint's prompt of this name.")


class JinaRerankBody(RequestBody):
    """A query and its documents."""

    query: str
    documents: list[str | dict[str, Any]] = Field(description="Strings, or objects with a string `text`.")
    model: Model = None
    top_n: int | None = Field(None, description="Give only the best.")
    return_documents: bool | None = Field(None, description="Give the documents back (default), or not.")
    truncate: bool | None = Field(None, description="Cut documents over the limit (default), or refuse them.")


class JinaClassifyBody(RequestBody):
    """Texts to label."""

    input: Texts
    model: Model = None
    labels: list[str] | None = Field(None, description="Labels of your own; by default those of the checkpoint.")


class JinaEmbedding(Embedding):
    """One vector; where several encodings were asked for, an object that has it in each."""

    embedding: list[float] | str | dict[str, list[float] | str]  # type: ignore[assignment]


class JinaEmbeddingsAnswer(BaseModel):
    """The vectors in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[JinaEmbedding]
    model: str
    usage: UsageBody


class JinaMultiVector(BaseModel):
    object: Literal["embeddings"] = "embeddings"
    index: int
    embeddings: list[list[float]] | list[str] | dict[str, list[list[float]] | list[str]]


class JinaMultiVectorAnswer(BaseModel):
    """The vectors of each text in the order of `input`."""

    object: Literal["list"] = "list"
    data: list[JinaMultiVector]
    model: str
    usage: UsageBody


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


async def create_embeddings(call: Call) -> Response:
    """Embed every item of `input` on its own, or all of them in one context."""
    body: JinaEmbeddingsBody = call.body
    names = _names(body.embedding_type or body.encoding_type or body.encoding_format)
    request = EmbedRequest(
        model=body.model,
        texts=_texts(body.input),
        encodings=[Encoding.named(name) for name in names],
        encoding_param="embedding_type",
        input_type=body.task or body.input_type,
        input_type_param="task" if body.task else "input_type",
        prompt_name=body.prompt_name,
        dimensions=body.dimensions,
        normalize=body.normalized,
        truncate=body.truncate,
    )
    if body.late_chunking:
        name, vectors, usage = await _embed_in_context(call, request)
        return _list_of(embedding_items(_in_each(vectors, names), [], call), name, usage.total_tokens)
    name, values = await embed(call, request)
    items = embedding_items(_in_each(values, names), values.truncated, call)
    return _list_of(items, name, sum(values.num_tokens))


async def create_multi_vectors(call: Call) -> Response:
    """Embed every item of `input`, one vector for each token."""
    body: JinaMultiVectorBody = call.body
    names = _names(body.embedding_type)
    request = EmbedRequest(
        model=body.model,
        texts=_texts(body.input),
        encodings=(),
        input_type=body.input_type,
        prompt_name=body.prompt_name,
        truncate=body.truncate,
    )
    name, encoded = await encode(call, request, ["multi_vector"], MultiVectorOptions(dimensions=body.dimensions))
    items = [
        {"object": "embeddings", "index": index, "embeddings": _together(vectors, names)}
        for index, vectors in enumerate(encoded.multi_vector or ())
    ]
    return _list_of(items, name, encoded.usage.total_tokens)


async def rerank(call: Call) -> Response:
    """Rank documents, which come back unless they are not wanted."""
    body: JinaRerankBody = call.body
    request = RankRequest(
        model=body.model, query=body.query, documents=body.documents, top_n=body.top_n, truncate=body.truncate
    )
    name, ranking = await rank(call, request)
    results = results_of(ranking, None if body.return_documents is False else body.documents)
    return json_response({"model": name, "usage": {"total_tokens": ranking.usage.total_tokens}, "results": results})


async def classify(call: Call) -> Response:
    """Label texts: by the checkpoint's own labels, by entailment, or by the cosine with labels of the caller's own."""
    body: JinaClassifyBody = call.body
    request = EmbedRequest(model=body.model, texts=_texts(body.input), encodings=(), input_type="classification")
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


async def _embed_in_context(call: Call, request: EmbedRequest) -> tuple[str, Float32Array, Usage]:
    """Embed the texts as the pieces of one text (late chunking)."""
    pieces = [request.texts] if isinstance(request.texts, str) else request.texts
    try:
        name, found = await embed_pieces(call, request, [pieces])
    except InputError as error:
        raise _about_the_only(error) from None
    return name, found[0].vectors, found.usage


def _about_the_only(error: InputError) -> InputError:
    """Return `error` without the position of the one text, whose pieces are the caller's items."""
    message = str(error).replace("input[0]", "input")
    if error.param == "input[0]":
        return type(error)(message, param="input", index=error.index)
    return type(error)(message, param=error.param, index=None if error.param == "input" else error.index)


def _texts(value: Any) -> Any:
    """Return strings for objects that have a `text`; the engine refuses what is wrong by its position."""
    if not isinstance(value, list):
        return value
    return [_text_of(item, index) for index, item in enumerate(value)]


def _text_of(item: Any, index: int) -> Any:
    if not isinstance(item, dict):
        return item
    if not isinstance(item.get("text"), str) or len(item) > 1:
        raise InputError(
            f"input[{index}] must be a string or an object with a string `text` alone: images are not read",
            param="input",
            index=index,
        )
    return item["text"]


def _names(value: EncodingNames | None) -> list[EncodingName]:
    if isinstance(value, str):
        return [value]
    return value or ["float"]


def _in_each(vectors: Float32Array, names: Sequence[EncodingName]) -> list[Any]:
    """Return each vector in the one encoding that was asked for, or an object that has it in each of several."""
    columns = {name: Encoding.named(name).rows(vectors, "embedding_type") for name in names}
    if len(columns) == 1:
        return list(next(iter(columns.values())))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _together(vectors: Any, names: Sequence[EncodingName]) -> Any:
    columns = {name: Encoding.named(name).rows(vectors, "embedding_type") for name in names}
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _classified(index: int, found: Classification) -> dict[str, Any]:
    scores = [{"label": scalar_text(label), "score": score} for label, score in found.scores.items()]
    best = {"prediction": scalar_text(found.label), "score": found.score}
    return {"object": "classification", "index": index, **best, "predictions": scores}


def _list_of(items: list[dict[str, Any]], name: str, total_tokens: int) -> Response:
    return json_response({"object": "list", "data": items, "model": name, "usage": usage_of(total_tokens)})


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"detail": ...}`, which for a model that is not served begins with Jina's code for it."""
    prefix = "INPUT_MODEL_NOT_FOUND: " if failed.code == "model_not_found" else ""
    return {"detail": prefix + failed.message}


def status(failed: Failure) -> int:
    """Return 422 for a wrong request, but 400 for an unknown model."""
    if failed.code == "model_not_found":
        return 400
    return 422 if failed.status == 400 else failed.status


JINA = Dialect(
    name="jina",
    operations=(
        Operation(
            method="POST",
            path="/v1/embeddings",
            handler=create_embeddings,
            summary="Embed texts",
            body=JinaEmbeddingsBody,
            answer=JinaEmbeddingsAnswer,
            marks=frozenset({"task", "late_chunking", "embedding_type", "encoding_type", "normalized"}),
            words={"normalize": "normalized"},
        ),
        Operation(
            method="POST",
            path="/v1/multi-vector",
            handler=create_multi_vectors,
            summary="Embed texts, one vector for each token",
            body=JinaMultiVectorBody,
            answer=JinaMultiVectorAnswer,
            words={"multi_vector_dimensions": "dimensions"},
        ),
        Operation(
            method="POST",
            path="/v1/rerank",
            aliases=("/rerank",),
            handler=rerank,
            summary="Rank documents by their relevance to a query",
            body=JinaRerankBody,
            answer=JinaRerankAnswer,
        ),
        Operation(
            method="POST",
            path="/v1/classify",
            handler=classify,
            summary="Label texts",
            body=JinaClassifyBody,
            answer=JinaClassifyAnswer,
        ),
    ),
    error_body=error_body,
    failure_body=DetailBody,
    status=status,
)

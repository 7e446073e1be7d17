"""Text Embeddings Inference's API: `POST /embed`, `POST /rerank`, `POST /predict` and their like, `GET /info`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import Response

from cenote.errors import EngineClosedError
from cenote.server.dialect import Call, Dialect, ErrorForm, Operation
from cenote.server.dialects.openai import WORDS, EmbeddingsRequest, create_embeddings
from cenote.server.failures import Failure
from cenote.server.ranking import RANK_WORDS
from cenote.server.schemas import EmbeddingsAnswer, RequestBody
from cenote.server.served import offers
from cenote.server.tei_info import TeiInfo, info
from cenote.server.tei_labels import (
    TeiPredictBody,
    TeiPredictions,
    TeiRanks,
    TeiRerankBody,
    predict,
    rerank,
)
from cenote.server.tei_tokens import (
    TeiDecodeBody,
    TeiTextsAnswer,
    TeiTokenizeBody,
    TeiTokens,
    decode,
    tokenize,
)
from cenote.server.tei_vectors import (
    TeiEmbedAllBody,
    TeiEmbedBody,
    TeiEmbedSparseBody,
    TeiSimilarities,
    TeiSimilarityBody,
    TeiSparseVectors,
    TeiTokenVectors,
    TeiVectors,
    embed_all,
    embed_dense,
    embed_sparse,
    similarity,
)

Handler = Callable[[Call], Awaitable[Response]]
ErrorType = Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Empty"]


class TeiError(BaseModel):
    error: str
    error_type: ErrorType


class TeiOpenAIError(BaseModel):
    """How TEI writes errors on OpenAI's route: flat."""

    message: str
    code: int
    type: ErrorType


async def health(call: Call) -> Response:
    """Answer 200 while every model can answer."""
    unhealthy = call.models.unhealthy()
    if unhealthy:
        raise EngineClosedError(f"unhealthy: {', '.join(unhealthy)}")
    return Response()


async def openai_embeddings(call: Call) -> Response:
    """Embed as OpenAI's route does, normalised. A name that is not served means the only model of embeddings."""
    body: EmbeddingsRequest = call.body
    if body.model not in call.models.names:
        body.model = call.models.fitting(None, offers("embed"))
    if body.normalize is None and body.use_activation is None:
        body.normalize = True
    return await create_embeddings(call)


def status(failed: Failure) -> int:
    """Return TEI's status: 422 for a wrong request but 400 for an empty one, 424 for what the model cannot do."""
    if failed.code == "unsupported_task":
        return 424
    if failed.code == "empty_input":
        return 400
    return {400: 422, 500: 424, 504: 424}.get(failed.status, failed.status)


def error_type(failed: Failure) -> ErrorType:
    """Return TEI's word for a failure."""
    if failed.code == "empty_input":
        return "Empty"
    types: dict[int, ErrorType] = {424: "Backend", 429: "Overloaded", 503: "Unhealthy"}
    return types.get(status(failed), "Validation")


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"error": ..., "error_type": ...}`."""
    return {"error": failed.message, "error_type": error_type(failed)}


def openai_error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"message": ..., "code": ..., "type": ...}`, without OpenAI's object around it, as TEI does."""
    return {"message": failed.message, "code": status(failed), "type": error_type(failed)}


def _post(
    path: str, handler: Handler, summary: str, body: type[RequestBody], answer: type[BaseModel], **more: Any
) -> Operation:
    return Operation(method="POST", path=path, handler=handler, summary=summary, body=body, answer=answer, **more)


def _openai(path: str) -> Operation:
    errors = ErrorForm(openai_error_body, TeiOpenAIError)
    return _post(
        path,
        openai_embeddings,
        "Embed texts",
        EmbeddingsRequest,
        EmbeddingsAnswer,
        is_own=True,
        errors=errors,
        words=WORDS,
    )


def _health(path: str) -> Operation:
    return Operation(
        method="GET", path=path, handler=health, summary="Say whether all is well", answer=None, is_own=True
    )


_RERANK_WORDS = {"documents": "texts", **RANK_WORDS}

TEI = Dialect(
    name="tei",
    operations=(
        _post("/embed", embed_dense, "Embed texts", TeiEmbedBody, TeiVectors),
        _post("/", embed_dense, "Embed texts", TeiEmbedBody, TeiVectors, is_own=True),
        _post("/embed_all", embed_all, "Embed every token of texts", TeiEmbedAllBody, TeiTokenVectors),
        _post("/embed_sparse", embed_sparse, "Embed texts as sparse vectors", TeiEmbedSparseBody, TeiSparseVectors),
        _post("/similarity", similarity, "Compare sentences with one", TeiSimilarityBody, TeiSimilarities),
        _post("/predict", predict, "Label texts", TeiPredictBody, TeiPredictions),
        _post(
            "/rerank", rerank, "Rank texts", TeiRerankBody, TeiRanks, marks=frozenset({"texts"}), words=_RERANK_WORDS
        ),
        _post("/tokenize", tokenize, "Take texts apart", TeiTokenizeBody, TeiTokens, marks=frozenset({"inputs"})),
        _post("/decode", decode, "Put token ids together", TeiDecodeBody, TeiTextsAnswer),
        _openai("/v1/embeddings"),
        _openai("/embeddings"),
        Operation(method="GET", path="/info", handler=info, summary="Describe the served model", answer=TeiInfo),
        Operation(
            method="GET", path="/info/{model:path}", handler=info, summary="Describe a served model", answer=TeiInfo
        ),
        _health("/health"),
        _health("/ping"),
        _health("/"),
    ),
    error_body=error_body,
    failure_body=TeiError,
    status=status,
)

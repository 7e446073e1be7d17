"""vLLM's API for pooling models: `/pooling`, `/classify`, `/score`, `/rerank`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from cenote.server.cohere_vectors import CohereEmbedAnswer, CohereEmbedBody, embed_v2
from cenote.server.dialect import Call, Dialect, Operation
from cenote.server.dialects.cohere import EMBED_WORDS
from cenote.server.dialects.openai import WORDS, ModelList, list_models
from cenote.server.failures import Failure
from cenote.server.ranking import RANK_WORDS
from cenote.server.vllm_pooling import (
    VllmClassifyAnswer,
    VllmClassifyBody,
    VllmEmbeddingsAnswer,
    VllmEmbeddingsBody,
    VllmPoolingAnswer,
    VllmPoolingBody,
    classify,
    embeddings,
    pooling,
)
from cenote.server.vllm_scores import VllmRankBody, VllmRankings, VllmScoreBody, VllmScores, rerank, score
from cenote.server.vllm_tokens import (
    VllmDetokenizeBody,
    VllmText,
    VllmTokenizeBody,
    VllmTokens,
    detokenize,
    tokenize,
)


class VllmErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: int


class VllmError(BaseModel):
    error: VllmErrorDetail


_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}


def status(failed: Failure) -> int:
    """Return vLLM's status: 501 for a route that the model has no task for, 400 for a body that cannot be read."""
    if failed.code == "unsupported_task":
        return 501
    return 400 if failed.code == "unsupported_media_type" else failed.status


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"error": {...}}` with vLLM's names of types and the status as `code`."""
    code = status(failed)
    kind = _TYPES.get(code, "InternalServerError" if code >= 500 else "BadRequestError")
    return {"error": {"message": failed.message, "type": kind, "param": failed.param, "code": code}}


async def embed_as_cohere(call: Call) -> Response:
    """Embed as Cohere's second version does, without Cohere's limit of texts."""
    return await embed_v2(replace(call, exact=False))


async def models(call: Call) -> Response:
    """List the served models with what vLLM says of each."""
    return await list_models(replace(call, exact=False))


def _score(path: str, **more: Any) -> Operation:
    return Operation(
        method="POST",
        path=path,
        handler=score,
        summary="Score pairs of a query and a document",
        body=VllmScoreBody,
        answer=VllmScores,
        words=RANK_WORDS,
        **more,
    )


def _rerank(path: str, **more: Any) -> Operation:
    return Operation(
        method="POST",
        path=path,
        handler=rerank,
        summary="Rank documents",
        body=VllmRankBody,
        answer=VllmRankings,
        words=RANK_WORDS,
        **more,
    )


VLLM = Dialect(
    name="vllm",
    operations=(
        Operation(
            method="POST",
            path="/pooling",
            handler=pooling,
            summary="Pool texts for one task",
            body=VllmPoolingBody,
            answer=VllmPoolingAnswer,
            may_give_bytes=True,
            words=WORDS,
        ),
        Operation(
            method="POST",
            path="/classify",
            handler=classify,
            summary="Label texts",
            body=VllmClassifyBody,
            answer=VllmClassifyAnswer,
            words=WORDS,
        ),
        Operation(
            method="POST",
            path="/v1/embeddings",
            handler=embeddings,
            summary="Embed texts",
            body=VllmEmbeddingsBody,
            answer=VllmEmbeddingsAnswer,
            may_give_bytes=True,
            words=WORDS,
            is_own=True,
        ),
        Operation(
            method="POST",
            path="/v2/embed",
            handler=embed_as_cohere,
            summary="Embed texts as Cohere does",
            body=CohereEmbedBody,
            answer=CohereEmbedAnswer,
            words=EMBED_WORDS,
            is_own=True,
        ),
        _score("/score", aliases=("/v1/score",)),
        _score("/v1/score", is_own=True),
        _rerank("/rerank"),
        _rerank("/v1/rerank", is_own=True),
        _rerank("/v2/rerank", is_own=True),
        Operation(
            method="GET",
            path="/v1/models",
            handler=models,
            summary="List the served models",
            answer=ModelList,
            is_own=True,
        ),
        Operation(
            method="POST",
            path="/tokenize",
            handler=tokenize,
            summary="Take a text or a conversation apart",
            body=VllmTokenizeBody,
            answer=VllmTokens,
            marks=frozenset({"prompt", "messages"}),
            words=WORDS,
        ),
        Operation(
            method="POST",
            path="/detokenize",
            handler=detokenize,
            summary="Put token ids together",
            body=VllmDetokenizeBody,
            answer=VllmText,
        ),
    ),
    error_body=error_body,
    failure_body=VllmError,
    status=status,
)

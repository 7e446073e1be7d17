"""vLLM's API for pooling models: `/pooling`, `/classify`, `/score`, `/rerank`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from cenote.server.dialect import Dialect, Operation
from cenote.server.failures import Failure
from cenote.server.vllm_pooling import (
    VllmClassifyAnswer,
    VllmClassifyBody,
    VllmPoolingAnswer,
    VllmPoolingBody,
    classify,
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
            words={"max_length": "truncate_prompt_tokens"},
        ),
        Operation(
            method="POST",
            path="/classify",
            handler=classify,
            summary="Label texts",
            body=VllmClassifyBody,
            answer=VllmClassifyAnswer,
            words={"max_length": "truncate_prompt_tokens"},
        ),
        Operation(
            method="POST",
            path="/score",
            aliases=("/v1/score",),
            handler=score,
            summary="Score pairs of a query and a document",
            body=VllmScoreBody,
            answer=VllmScores,
        ),
        Operation(
            method="POST",
            path="/rerank",
            handler=rerank,
            summary="Rank documents",
            body=VllmRankBody,
            answer=VllmRankings,
        ),
        Operation(
            method="POST",
            path="/tokenize",
            handler=tokenize,
            summary="Take a text or a conversation apart",
            body=VllmTokenizeBody,
            answer=VllmTokens,
            marks=frozenset({"prompt", "messages"}),
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

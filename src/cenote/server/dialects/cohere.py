"""Cohere's API: `POST /v1/embed`, `POST /v2/embed`, `POST /v1/rerank`, `POST /v2/rerank`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from cenote.server.cohere_ranks import CohereRerankAnswer, CohereRerankBody, rerank_v1, rerank_v2
from cenote.server.cohere_vectors import CohereEmbedAnswer, CohereEmbedBody, embed_v1, embed_v2
from cenote.server.dialect import Dialect, Operation
from cenote.server.failures import Failure
from cenote.server.ranking import RANK_WORDS


class CohereError(BaseModel):
    message: str


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"message": ...}`."""
    return {"message": failed.message}


EMBED_WORDS = {"dimensions": "output_dimension", "max_length": "max_tokens"}

COHERE = Dialect(
    name="cohere",
    operations=(
        Operation(
            method="POST",
            path="/v1/embed",
            handler=embed_v1,
            summary="Embed texts (version 1)",
            body=CohereEmbedBody,
            answer=CohereEmbedAnswer,
            words=EMBED_WORDS,
        ),
        Operation(
            method="POST",
            path="/v2/embed",
            handler=embed_v2,
            summary="Embed texts (version 2)",
            body=CohereEmbedBody,
            answer=CohereEmbedAnswer,
            words=EMBED_WORDS,
        ),
        Operation(
            method="POST",
            path="/v1/rerank",
            aliases=("/rerank",),
            handler=rerank_v1,
            summary="Rank documents by their relevance to a query (version 1)",
            body=CohereRerankBody,
            answer=CohereRerankAnswer,
            words=RANK_WORDS,
        ),
        Operation(
            method="POST",
            path="/v2/rerank",
            handler=rerank_v2,
            summary="Rank documents by their relevance to a query (version 2)",
            body=CohereRerankBody,
            answer=CohereRerankAnswer,
            words=RANK_WORDS,
        ),
    ),
    error_body=error_body,
    failure_body=CohereError,
)

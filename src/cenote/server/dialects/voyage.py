"""Voyage's API: `POST /v1/embeddings`, `POST /v1/contextualizedembeddings`, `POST /v1/rerank`."""

from __future__ import annotations

from typing import Any

from cenote.server.dialect import Dialect, Operation
from cenote.server.failures import Failure
from cenote.server.ranking import RANK_WORDS
from cenote.server.schemas import DetailBody
from cenote.server.voyage_ranks import VoyageRerankAnswer, VoyageRerankBody, rerank
from cenote.server.voyage_vectors import (
    VoyageContextualizedAnswer,
    VoyageContextualizedBody,
    VoyageEmbeddingsAnswer,
    VoyageEmbeddingsBody,
    create_contextualized_embeddings,
    create_embeddings,
)


def error_body(failed: Failure) -> dict[str, Any]:
    """Return `{"detail": ...}`."""
    return {"detail": failed.message}


def status(failed: Failure) -> int:
    """Return 400 for an unknown model, too."""
    return 400 if failed.code == "model_not_found" else failed.status


_WORDS = {"dimensions": "output_dimension", "top_n": "top_k"}

VOYAGE = Dialect(
    name="voyage",
    operations=(
        Operation(
            method="POST",
            path="/v1/embeddings",
            handler=create_embeddings,
            summary="Embed texts",
            body=VoyageEmbeddingsBody,
            answer=VoyageEmbeddingsAnswer,
            marks=frozenset({"output_dimension", "output_dtype", "truncation"}),
            words=_WORDS | {"max_length": "truncate_prompt_tokens"},
        ),
        Operation(
            method="POST",
            path="/v1/contextualizedembeddings",
            handler=create_contextualized_embeddings,
            summary="Embed the pieces of texts in their context",
            body=VoyageContextualizedBody,
            answer=VoyageContextualizedAnswer,
            words=_WORDS,
        ),
        Operation(
            method="POST",
            path="/v1/rerank",
            aliases=("/rerank",),
            handler=rerank,
            summary="Rank documents by their relevance to a query",
            body=VoyageRerankBody,
            answer=VoyageRerankAnswer,
            marks=frozenset({"top_k", "truncation"}),
            words=_WORDS | RANK_WORDS,
        ),
    ),
    error_body=error_body,
    failure_body=DetailBody,
    status=status,
)

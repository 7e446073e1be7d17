"""Jina's API: `POST /v1/embeddings`, `POST /v1/multi-vector`, `POST /v1/rerank`, `POST /v1/classify`."""

from __future__ import annotations

from typing import Any

from cenote.server.dialect import Dialect, Operation
from cenote.server.failures import Failure
from cenote.server.jina_labels import (
    JinaClassifyAnswer,
    JinaClassifyBody,
    JinaRerankAnswer,
    JinaRerankBody,
    classify,
    rerank,
)
from cenote.server.jina_vectors import (
    JinaEmbeddingsAnswer,
    JinaEmbeddingsBody,
    JinaMultiVectorAnswer,
    JinaMultiVectorBody,
    create_embeddings,
    create_multi_vectors,
)
from cenote.server.ranking import RANK_WORDS
from cenote.server.schemas import DetailBody


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
            words={"normalize": "normalized", "max_length": "truncate_prompt_tokens"},
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
            words=RANK_WORDS,
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

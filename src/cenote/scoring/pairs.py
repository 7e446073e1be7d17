"""Models that read a query and a document together: cross-encoders and rerankers made of language models."""

from __future__ import annotations

import numpy as np
import torch

from cenote.core import Core, Pending, usage
from cenote.outputs import RerankKind
from cenote.params import PoolingParams
from cenote.pooling.activations import build_activation
from cenote.runtime.request import Answer
from cenote.scoring.request import PairScores, ScoreRequest
from cenote.text.options import PairOptions


def score_pairs(core: Core, request: ScoreRequest) -> Pending[PairScores]:
    """Score each pair by the model's one column. fp32 logits leave the device; the activation is applied to those."""
    classify = core.spec.classify
    assert classify is not None
    kind: RerankKind = "cross_encoder" if core.spec.text.pair_prompt is None else "llm_reranker"
    options = PairOptions(
        instruction=request.instruction,
        max_query_tokens=request.max_query_tokens,
        max_document_tokens=request.max_document_tokens,
        max_length=request.max_tokens,
        truncate=request.truncate,
        truncation_side=request.truncation_side,
        query_param=request.query_param,
        document_param=request.document_param,
    )
    tokenized = core.encoder.encode_pairs(request.query_texts, request.documents, options)
    params = PoolingParams(task="classify", use_activation=False)
    future = core.submit(tokenized, core.task_params([params], tokenized))

    def assemble(answer: Answer) -> PairScores:
        raw = np.concatenate(answer.arrays("classify")).astype(np.float32)
        scores = build_activation(classify.activation)(torch.from_numpy(raw)[:, None])[:, 0].numpy()
        truncated = [text.truncated for text in tokenized]
        return PairScores(raw=raw, scores=scores, truncated=truncated, usage=usage(tokenized, answer), kind=kind)

    return Pending(future=future, assemble=assemble)

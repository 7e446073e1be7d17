"""One output for each token: a token pooling method and a head."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from cenote.checkpoint.spec import TokenClassifySpec
from cenote.errors import CheckpointError, InputError
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.classifier import LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.heads.embedding import EmbeddingOptions
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.all import AllPool
from cenote.pooling.methods.base import TokenPoolingMethod
from cenote.pooling.origin import Origin
from cenote.pooling.packed import TokenRows
from cenote.pooling.pooler import Pooler


class TokenHead(Protocol):
    """What becomes of the rows of each sequence; `None` passes through."""

    task: Task

    def verify_params(self, params: PoolingParams) -> None: ...

    def __call__(self, pooled_data: TokenRows, pooling_metadata: PoolingMetadata) -> TokenRows: ...


class TokenPooler(Pooler):
    """Pool each sequence to rows `[n, H]` and give them to the head."""

    def __init__(self, pooling: TokenPoolingMethod, head: TokenHead) -> None:
        super().__init__()
        self.pooling = pooling
        self.head = head

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset({self.head.task})

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        return self.pooling.get_pooling_updates(task)

    def verify_params(self, params: PoolingParams) -> None:
        """Raise `InputError` for a size that the head cannot give, and for steps, which only reward models have."""
        self.head.verify_params(params)
        for name in ("step_tag_id", "returned_token_ids"):
            if getattr(params, name) is not None:
                raise InputError(f"{name} is for process reward models, which this model is not", param=name)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> TokenRows:
        return self.head(self.pooling(hidden_states, pooling_metadata), pooling_metadata)


def pooler_for_token_classify(spec: TokenClassifySpec, origin: Origin) -> TokenPooler:
    """Build the label probabilities of every token from the head that the model has."""
    classifier = origin.model.token_classifier
    if classifier is None:
        raise CheckpointError(f"the model of {origin.spec.name} has no token classifier")
    head = TokenClassifierPoolerHead(classifier, LabelOptions(spec.activation, spec.use_activation))
    return TokenPooler(AllPool(), head)


def pooler_for_hidden_states(origin: Origin) -> TokenPooler:
    """Build what gives every row of the backbone as it is, in fp32."""
    options = EmbeddingOptions(DimensionRule(origin.spec.hidden_size, None), normalize=False)
    return TokenPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), options))

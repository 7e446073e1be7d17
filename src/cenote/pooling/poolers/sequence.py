"""One output for a whole sequence: a pooling method and a head."""

from __future__ import annotations

from typing import Protocol

import torch

from cenote.checkpoint.spec import ClassifySpec, EmbedSpec, PoolingMode
from cenote.errors import CheckpointError, InputError
from cenote.params import PoolingParams, Task
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.classifier import ClassifierPoolerHead, LabelOptions
from cenote.pooling.heads.embedding import EmbeddingOptions, EmbeddingPoolerHead
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.base import SequencePoolingMethod
from cenote.pooling.methods.cls import CLSPool
from cenote.pooling.methods.concat import ConcatPool
from cenote.pooling.methods.last import LastPool
from cenote.pooling.methods.max import MaxPool
from cenote.pooling.methods.mean import MeanPool
from cenote.pooling.methods.mean_sqrt_len import MeanSqrtLenPool
from cenote.pooling.methods.transformed import TransformedPool
from cenote.pooling.methods.weighted_mean import WeightedMeanPool
from cenote.pooling.origin import Origin
from cenote.pooling.output import PoolerOutput
from cenote.pooling.pooler import Pooler
from cenote.pooling.weights import load_projector

METHODS: dict[PoolingMode, type[SequencePoolingMethod]] = {
    "cls": CLSPool,
    "last": LastPool,
    "mean": MeanPool,
    "max": MaxPool,
    "mean_sqrt_len": MeanSqrtLenPool,
    "weighted_mean": WeightedMeanPool,
}


class SequenceHead(Protocol):
    """What becomes of one pooled row for each sequence."""

    task: Task

    def verify_params(self, params: PoolingParams) -> None: ...

    def __call__(self, pooled_data: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput: ...


class SequencePooler(Pooler):
    """Pool each sequence to one row `[B, H]` and give it to the head."""

    def __init__(self, pooling: SequencePoolingMethod, head: SequenceHead) -> None:
        super().__init__()
        self.pooling = pooling
        self.head = head

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset({self.head.task})

    def needs_all_rows(self) -> bool:
        return self.pooling.needs_all_rows

    def supports_chunks(self) -> bool:
        """Only the last row can do without those of the steps before; keeping them all for a mean does not pay."""
        return not self.pooling.needs_all_rows

    def verify_params(self, params: PoolingParams) -> None:
        """Raise `InputError` for what the head cannot give, and for pieces, which have no such row of their own."""
        self.head.verify_params(params)
        if params.segments is not None:
            raise InputError(
                "late chunking averages the rows of each piece, so it needs a model with mean pooling alone; this one "
                f"pools by {type(self.pooling).__name__}",
                param="segments",
            )

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        return self.head(self.pooling(hidden_states, pooling_metadata), pooling_metadata)


def pooling_method(modes: tuple[PoolingMode, ...]) -> SequencePoolingMethod:
    """Return the method for these modes; several are joined in order."""
    methods = [METHODS[mode]() for mode in modes]
    return methods[0] if len(methods) == 1 else ConcatPool(methods)


def embed_head(spec: EmbedSpec, origin: Origin) -> EmbeddingPoolerHead:
    """Build what follows the pooling; raise `CheckpointError` where the checkpoint's Dense weights cannot be used."""
    rule = DimensionRule(spec.dimensions, spec.matryoshka, origin.any_dimensions)
    options = EmbeddingOptions(rule, spec.normalize, spec.default_dimensions)
    return EmbeddingPoolerHead(load_projector(spec.dense), options)


def pooler_for_embed(spec: EmbedSpec, origin: Origin) -> SequencePooler:
    """Build the dense embedding of a checkpoint."""
    return SequencePooler(pooling_method(spec.modes), embed_head(spec, origin))


def pooler_for_classify(spec: ClassifySpec, origin: Origin) -> SequencePooler:
    """Build the labels, the relevance score or the reward of a checkpoint from the head that its model has."""
    classifier = origin.model.classifier
    if classifier is None:
        raise CheckpointError(f"the model of {origin.spec.name} has no classifier")
    pooling = METHODS[classifier.rows]()
    if classifier.token_module is not None:
        pooling = TransformedPool(classifier.token_module, pooling)
    options = LabelOptions(spec.activation, spec.use_activation, spec.logit_mean, spec.logit_sigma)
    return SequencePooler(pooling, ClassifierPoolerHead(classifier.module, options))

"""Rewards for each step of a reasoning: the rows of the step mark, scored."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from cenote.checkpoint.spec import TokenClassifySpec
from cenote.errors import CheckpointError, InputError
from cenote.params import PoolingParams
from cenote.pooling.heads.classifier import LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.methods.step import StepDefaults, StepPool
from cenote.pooling.origin import Origin
from cenote.pooling.poolers.token import TokenPooler


@dataclass(frozen=True)
class StepLimits:
    """How many columns the scorer gives and how many token ids there are."""

    num_columns: int
    vocab_size: int


class ProcessRewardPooler(TokenPooler):
    """Score the rows that end a step, choose columns, then apply the activation by the width that is left."""

    def __init__(self, pooling: StepPool, options: LabelOptions, limits: StepLimits) -> None:
        super().__init__(pooling, TokenClassifierPoolerHead(nn.Identity(), options))
        self.limits = limits

    def verify_params(self, params: PoolingParams) -> None:
        """Raise `InputError` for a column or a token that the model does not have."""
        for column in params.returned_token_ids or ():
            _check_range("returned_token_ids", column, self.limits.num_columns)
        if params.step_tag_id is not None:
            _check_range("step_tag_id", params.step_tag_id, self.limits.vocab_size)


def _check_range(name: str, value: int, limit: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise InputError(f"{name} must be whole numbers from 0 to {limit - 1}, not {value!r}", param=name)


def pooler_for_steps(spec: TokenClassifySpec, origin: Origin) -> ProcessRewardPooler:
    """Build the step rewards of a checkpoint from the scoring head that its model has."""
    scorer = origin.model.token_classifier
    if scorer is None:
        raise CheckpointError(f"the model of {origin.spec.name} has no head that scores tokens")
    limits = StepLimits(spec.num_labels, origin.spec.vocab_size)
    pooling = StepPool(scorer, StepDefaults(spec.step_tag_id, spec.returned_token_ids))
    pooler = ProcessRewardPooler(pooling, LabelOptions(spec.activation, spec.use_activation), limits)
    _check_defaults(spec, pooler)
    return pooler


def _check_defaults(spec: TokenClassifySpec, pooler: ProcessRewardPooler) -> None:
    defaults = PoolingParams(step_tag_id=spec.step_tag_id, returned_token_ids=spec.returned_token_ids)
    try:
        pooler.verify_params(defaults)
    except InputError as error:
        raise CheckpointError(f"the checkpoint asks for steps that its model does not have: {error}") from error

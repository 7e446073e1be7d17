"""Labels, scores and rewards: fp32 -> classifier -> `(logits - mean) / sigma` -> activation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from cenote.errors import CheckpointError
from cenote.params import PoolingParams, Task
from cenote.pooling.activations import build_activation
from cenote.pooling.heads.options import RowOptions
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.packed import TokenRows, map_packed, of_present


@dataclass(frozen=True)
class LabelOptions:
    """How a checkpoint finishes its logits: shifted and scaled, then its activation where it is on by itself."""

    activation: str
    use_activation: bool = True
    logit_mean: float = 0.0
    logit_sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.logit_sigma:
            raise CheckpointError("logit_sigma is 0: logits cannot be divided by it")

    def calibrate(self, logits: torch.Tensor) -> torch.Tensor:
        """Return `(logits - mean) / sigma`."""
        if (self.logit_mean, self.logit_sigma) == (0.0, 1.0):
            return logits
        return (logits - self.logit_mean) / self.logit_sigma


class LabelHead(nn.Module):
    """A classifier and what becomes of its logits. They are fp32 before any activation, so that none of them tie."""

    def __init__(self, classifier: nn.Module, options: LabelOptions) -> None:
        super().__init__()
        self.classifier = classifier
        self.activation = build_activation(options.activation)
        self.options = options

    def verify_params(self, params: PoolingParams) -> None:
        """Every caller's wish that the task knows can be met."""

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the calibrated fp32 logits of each row."""
        return self.options.calibrate(self.classifier(rows.float()).float())


class ClassifierPoolerHead(LabelHead):
    """Pooled rows `[B, H]` -> fp32 `[B, C]`."""

    task: Task = "classify"

    def forward(self, pooled_data: torch.Tensor, pooling_metadata: PoolingMetadata) -> torch.Tensor:
        logits_BC = self.logits(pooled_data)
        wishes = RowOptions.of(pooling_metadata.pooling_params, logits_BC.shape[1], self.options.use_activation)
        wishes.check_length(pooled_data.shape[0])
        return wishes.activate(self.activation, logits_BC)


class TokenClassifierPoolerHead(LabelHead):
    """Rows `[n, H]` of each sequence -> fp32 `[n, C]`, as `ClassifierPoolerHead`. `None` passes through."""

    task: Task = "token_classify"

    def forward(self, pooled_data: TokenRows, pooling_metadata: PoolingMetadata) -> TokenRows:
        """Finish all rows at once; where texts have chosen unlike numbers of columns, width by width."""
        finished = list(pooled_data)
        for width in dict.fromkeys(each.shape[1] for each in pooled_data if each is not None):
            rows = [each if each is not None and each.shape[1] == width else None for each in pooled_data]
            params = of_present(rows, pooling_metadata.pooling_params)
            done = map_packed(rows, partial(self._finish, params))
            finished = [old if new is None else new for old, new in zip(finished, done, strict=True)]
        return finished

    def _finish(self, params: list[PoolingParams], rows_NH: torch.Tensor, counts: list[int]) -> torch.Tensor:
        logits_NC = self.logits(rows_NH)
        wishes = RowOptions.of(params, logits_NC.shape[1], self.options.use_activation)
        return wishes.repeated(counts).activate(self.activation, logits_NC)

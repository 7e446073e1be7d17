"""The last step of a classifier, by the name that the checkpoint gives it."""

from __future__ import annotations

import torch
from torch import nn

from cenote.checkpoint.dense import ACTIVATIONS
from cenote.errors import CheckpointError


class PoolerClassify(nn.Module):
    """Sigmoid for one column, softmax over the columns for more: told apart by the width that arrives."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.sigmoid() if logits.shape[-1] < 2 else logits.softmax(dim=-1)


_BY_RULE: dict[str, type[nn.Module]] = {"identity": nn.Identity, "sigmoid": nn.Sigmoid, "auto": PoolerClassify}


def build_activation(name: str) -> nn.Module:
    """Return the activation called `identity`, `sigmoid`, `softmax`, `auto`, or by its class name in `torch.nn`.

    The name comes from a checkpoint and is not trusted: only those in `checkpoint.dense.ACTIVATIONS` are built.
    """
    if name.lower() == "softmax":
        return nn.Softmax(dim=-1)
    if name in _BY_RULE:
        return _BY_RULE[name]()
    if name not in ACTIVATIONS:
        raise CheckpointError(f"the checkpoint names the activation {name!r}; known: {', '.join(sorted(ACTIVATIONS))}")
    chosen: type[nn.Module] = getattr(nn, name)
    return chosen()

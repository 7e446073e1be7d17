"""The last step of a classifier, by the name that the checkpoint gives it."""

from __future__ import annotations

import torch
from torch import nn

from cenote.errors import CheckpointError


class PoolerClassify(nn.Module):
    """Sigmoid for one column, softmax over the columns for more: told apart by the width that arrives."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.sigmoid() if logits.shape[-1] < 2 else logits.softmax(dim=-1)


_BY_RULE: dict[str, type[nn.Module]] = {"identity": nn.Identity, "sigmoid": nn.Sigmoid, "auto": PoolerClassify}


def build_activation(name: str) -> nn.Module:
    """Return the activation called `identity`, `sigmoid`, `softmax`, `auto`, or by a class name of `torch.nn`.

    Only activation classes that need no arguments are taken; the name comes from a checkpoint and is not trusted.
    """
    if name.lower() == "softmax":
        return nn.Softmax(dim=-1)
    chosen = _BY_RULE.get(name) or getattr(nn.modules.activation, name, None)
    if name == "Identity":
        chosen = nn.Identity
    if not (isinstance(chosen, type) and issubclass(chosen, nn.Module)):
        raise CheckpointError(f"the checkpoint names the activation {name!r}, which torch.nn does not have")
    try:
        return chosen()
    except TypeError:
        raise CheckpointError(f"the checkpoint names {name!r} as an activation, which needs arguments") from None

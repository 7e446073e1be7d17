"""The two-layer `score` of Qwen2's reward models, which transformers has no class for."""

from __future__ import annotations

import torch
from torch import nn

from cenote.checkpoint.spec import ModelSpec
from cenote.errors import CheckpointError
from cenote.models.weights import read_tensors

SCORE_PREFIX = "score."


def reward_score(spec: ModelSpec, device: torch.device) -> nn.Sequential:
    """Return `Linear(H, H) - ReLU - Linear(H, C)` in fp32, loaded from the keys `score.0.*` and `score.2.*`."""
    part = spec.classify or spec.token_classify
    assert part is not None, "a reward model has a part that scores"
    with torch.device("meta"):
        score = nn.Sequential(
            nn.Linear(spec.hidden_size, spec.hidden_size), nn.ReLU(), nn.Linear(spec.hidden_size, part.num_labels)
        )
    if device.type == "meta":
        return score.eval().requires_grad_(False)
    tensors = {name: tensor.float() for name, tensor in read_tensors(spec, SCORE_PREFIX).items()}
    expected = {name: tuple(tensor.shape) for name, tensor in score.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise CheckpointError(
            f"the reward head in {spec.folder} has the weights {found} under {SCORE_PREFIX!r}, expected {expected}"
        )
    score.load_state_dict(tensors, assign=True)
    return score.to(device).eval().requires_grad_(False)

"""Small modules of a checkpoint (Dense, sparse and ColBERT linears) from their own weight files, nothing guessed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from cenote.checkpoint.spec import DenseSpec, TensorSource
from cenote.errors import CheckpointError
from cenote.pooling.activations import build_activation

_UNREADABLE = (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError)


def load_linear(source: TensorSource, in_features: int, out_features: int, bias: bool | None = None) -> nn.Linear:
    """Return the linear layer `{prefix}weight`, `{prefix}bias` of `source` in fp32.

    `bias=None` takes a bias where there is one. Safetensors are read as they are, `.bin` and `.pt` with
    `weights_only=True`. Raise `CheckpointError` where the file cannot be read or holds another layer than that.
    """
    available = _read(source)
    tensors = {name: available.get(f"{source.prefix}{name}") for name in ("weight", "bias")}
    found = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    has_bias = "bias" in found if bias is None else bias
    expected: dict[str, tuple[int, ...]] = {"weight": (out_features, in_features)}
    if has_bias:
        expected["bias"] = (out_features,)
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if shapes != expected:
        raise CheckpointError(
            f"{source.path} should hold {expected} under {source.prefix!r} and holds {shapes}; fetch it again, or "
            "check the sizes in its config.json"
        )
    linear = nn.Linear(in_features, out_features, bias=has_bias, device="meta")
    linear.load_state_dict({name: tensor.float() for name, tensor in found.items()}, assign=True)
    linear.requires_grad_(False)
    return linear


def _read(source: TensorSource) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a file whose keys start with the prefix."""
    try:
        if source.path.suffix == ".safetensors":
            return _read_safetensors(source)
        tensors = torch.load(source.path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise CheckpointError(f"cannot read the weights in {source.path}: {error}. Fetch them again.") from error
    if not (isinstance(tensors, Mapping) and all(isinstance(value, torch.Tensor) for value in tensors.values())):
        raise CheckpointError(f"{source.path} holds something else than named tensors")
    return tensors


def _read_safetensors(source: TensorSource) -> dict[str, torch.Tensor]:
    with safe_open(source.path, framework="pt") as file:
        names = [name for name in file.keys() if name.startswith(source.prefix)]  # noqa: SIM118 - not a mapping
        return {name: file.get_tensor(name) for name in names}


class Dense(nn.Module):
    """`activation(x W^T + b)` in fp32: one sentence-transformers `Dense` module."""

    def __init__(self, linear: nn.Linear, activation: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(rows))  # type: ignore[no-any-return]


def load_projector(specs: tuple[DenseSpec, ...]) -> nn.Sequential:
    """Return the Dense modules in the order in which they run, none for an empty tuple."""
    return nn.Sequential(
        *(
            Dense(load_linear(s.weights, s.in_features, s.out_features, s.bias), build_activation(s.activation))
            for s in specs
        )
    )

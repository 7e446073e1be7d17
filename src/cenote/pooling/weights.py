"""Small modules of a checkpoint (Dense, sparse and ColBERT linears) from their own weight files, nothing guessed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from cenote.checkpoint.spec import DenseSpec, TensorSource
from cenote.errors import CheckpointError
from cenote.pooling.activations import build_activation

_LINEAR_NAMES = ("", "linear.", "dense.")
"""Where a linear layer's `weight` and `bias` may stand behind the prefix."""


def load_tensors(source: TensorSource) -> dict[str, torch.Tensor]:
    """Return the tensors of `source` by the part of their keys behind its prefix.

    Safetensors are read as they are, `.bin` and `.pt` with `weights_only=True`. Raise `CheckpointError` where the file
    is absent, damaged or holds anything but tensors.
    """
    tensors = _read(source.path)
    prefix = source.prefix if not source.prefix or source.prefix.endswith(".") else f"{source.prefix}."
    found = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    if not found:
        raise CheckpointError(
            f"{source.path} has no weights under {prefix!r}; it has: {', '.join(sorted(tensors)[:8])}"
        )
    return found


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"cannot read the weights in {path}: {error}. Fetch the checkpoint again.") from error
    if not (isinstance(tensors, Mapping) and all(isinstance(value, torch.Tensor) for value in tensors.values())):
        raise CheckpointError(f"{path} holds something else than named tensors")
    return tensors


def load_linear(source: TensorSource, in_features: int, out_features: int, bias: bool | None = None) -> nn.Linear:
    """Return the linear layer in `source` with fp32 weights. `bias=None` takes a bias where there is one.

    Raise `CheckpointError` for a missing or wrongly shaped weight and for keys that would be left unused.
    """
    tensors = load_tensors(source)
    places = [place for place in _LINEAR_NAMES if f"{place}weight" in tensors]
    if len(places) != 1:
        raise CheckpointError(f"{source.path} should hold one linear layer; it holds: {', '.join(sorted(tensors))}")
    has_bias = f"{places[0]}bias" in tensors if bias is None else bias
    expected: dict[str, tuple[int, ...]] = {f"{places[0]}weight": (out_features, in_features)}
    if has_bias:
        expected[f"{places[0]}bias"] = (out_features,)
    _check(source.path, tensors, expected)
    linear = nn.Linear(in_features, out_features, bias=has_bias, device="meta")
    weights = {key.removeprefix(places[0]): value.float() for key, value in tensors.items()}
    linear.load_state_dict(weights, assign=True)
    linear.requires_grad_(False)
    return linear


def _check(path: Path, tensors: Mapping[str, torch.Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    if shapes != dict(expected):
        raise CheckpointError(f"{path} should hold {dict(expected)} and holds {shapes}")


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

"""sentence-transformers' and PyLate's `Dense` modules, and the activations that a checkpoint may name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cenote.checkpoint.modules import Module
from cenote.checkpoint.spec import DenseSpec, TensorSource
from cenote.checkpoint.weights import Weights, find_weights
from cenote.errors import CheckpointError

ACTIVATIONS = frozenset(
    {
        "CELU",
        "ELU",
        "GELU",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "Identity",
        "LeakyReLU",
        "LogSigmoid",
        "Mish",
        "ReLU",
    }
    | {"ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "Tanhshrink"}
)
"""The classes of `torch.nn` that need no argument and map numbers to numbers."""

_PREFIXES = ("linear.", "", "dense.")


def activation_name(dotted: object, source: str) -> str:
    """Return the class name of an activation that a checkpoint names by its dotted path, e.g. `Tanh`.

    Only `torch.nn` is accepted, as sentence-transformers does without trust_remote_code; anything else would be code.
    """
    if dotted is None:
        return "Identity"
    package, _, name = str(dotted).rpartition(".")
    if not (package == "torch.nn" or package.startswith("torch.nn.modules.")) or name not in ACTIVATIONS:
        raise CheckpointError(
            f"{source} asks for the activation {dotted!r}; Cenote accepts these of torch.nn: "
            f"{', '.join(sorted(ACTIVATIONS))}"
        )
    return name


def read_dense(module: Module, in_features: int) -> DenseSpec:
    """Return the linear layer of a `Dense` module that takes vectors of `in_features`.

    Raises `CheckpointError` where its weights are missing, do not fit the configuration, or do not fit what comes in.
    """
    source = str(module.folder / "config.json")
    width_in, width_out = (_size(module.config, key, source) for key in ("in_features", "out_features"))
    if width_in != in_features:
        raise CheckpointError(f"{source} takes {width_in} values, but the module before it gives {in_features}")
    if module.config.get("use_residual"):
        raise CheckpointError(f"{source} asks for a residual connection (use_residual), which Cenote does not run yet")
    bias = bool(module.config.get("bias", True))
    return DenseSpec(
        in_features=width_in,
        out_features=width_out,
        bias=bias,
        activation=activation_name(
            module.config.get("activation_function", "torch.nn.modules.activation.Tanh"), source
        ),
        weights=_source(module.folder, (width_out, width_in), bias=bias),
    )


def _size(config: Mapping[str, Any], key: str, source: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{source} must give {key} as a positive number, not {value!r}")
    return value


def _source(folder: Path, shape: tuple[int, int], *, bias: bool) -> TensorSource:
    weights = find_weights(folder)
    if weights is None:
        raise CheckpointError(
            f"the Dense module {folder} has no weights (model.safetensors or pytorch_model.bin); fetch it again"
        )
    return linear_source(weights, _PREFIXES, shape, bias=bias)


def linear_source(weights: Weights, prefixes: tuple[str, ...], shape: tuple[int, int], *, bias: bool) -> TensorSource:
    """Return where a linear layer of `shape` (out, in) keeps its tensors: at the first of `prefixes` that is there."""
    prefix = next((each for each in prefixes if f"{each}weight" in weights.tensors), None)
    if prefix is None:
        raise CheckpointError(
            f"{weights.files[0]} has no {' or '.join(f'{each}weight' for each in prefixes)}; the checkpoint is damaged"
        )
    info = weights.tensors[f"{prefix}weight"]
    if info.shape is not None and info.shape != shape:
        raise CheckpointError(
            f"{info.path} has {prefix}weight of shape {list(info.shape)}, but its config says {list(shape)}"
        )
    if bias and f"{prefix}bias" not in weights.tensors:
        raise CheckpointError(f"{info.path} has no {prefix}bias, but its config says bias=true")
    return TensorSource(path=info.path, prefix=prefix)

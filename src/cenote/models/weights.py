"""Weights of a checkpoint into a transformers class, with nothing missing, reshaped or guessed."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from cenote.checkpoint.spec import ModelSpec
from cenote.checkpoint.weights import read_weights
from cenote.errors import CheckpointError

_UNREADABLE = (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError)
_MOST_NAMED = 5


def load_weights(
    spec: ModelSpec,
    cls: type[PreTrainedModel],
    config: PretrainedConfig,
    options: dict[str, Any],
    target: tuple[torch.dtype, torch.device],
) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Build `cls` on the target and fill it; return it with the checkpoint's keys that it did not take.

    On `meta` no weight is read. transformers renames the keys that hub checkpoints carry.
    """
    dtype, device = target
    if device.type == "meta":
        with torch.device("meta"):
            return cls._from_config(config, dtype=dtype, **options), ()
    if not spec.weight_files:
        raise CheckpointError(f"{spec.folder} has no weights; expected model.safetensors or pytorch_model.bin")
    read_weights(spec.weight_files)
    with _quiet():
        model, info = _from_pretrained(spec, cls, {"config": config, "dtype": dtype, **options})
    _refuse_incomplete(spec, cls, info)
    return model.to(device), tuple(sorted(info["unexpected_keys"]))


def _from_pretrained(
    spec: ModelSpec, cls: type[PreTrainedModel], options: dict[str, Any]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    try:
        model, info = cls.from_pretrained(
            spec.folder,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused with their names below
            use_safetensors=spec.weight_files[0].suffix == ".safetensors",
            weights_only=True,
            **options,
        )
    except _UNREADABLE as error:
        files = ", ".join(path.name for path in spec.weight_files)
        raise CheckpointError(f"cannot load {files} of {spec.folder} into {cls.__name__}: {error}") from error
    return model, info


def _refuse_incomplete(spec: ModelSpec, cls: type[PreTrainedModel], info: dict[str, Any]) -> None:
    where = f"{spec.folder} ({', '.join(path.name for path in spec.weight_files)})"
    if info["mismatched_keys"]:
        wrong = (
            f"{key}: {tuple(found)} where config.json asks for {tuple(asked)}"
            for key, found, asked in sorted(info["mismatched_keys"])
        )
        raise CheckpointError(f"weights of the wrong shape in {where}: {_some(wrong)}")
    if info["missing_keys"]:
        raise CheckpointError(
            f"weights that {cls.__name__} needs are not in {where}: {_some(sorted(info['missing_keys']))}. "
            f"Fetch the checkpoint again, or check the architecture in its config.json"
        )
    if info["error_msgs"]:
        raise CheckpointError(f"cannot load {where} into {cls.__name__}: {_some(info['error_msgs'])}")


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return "; ".join(every[:_MOST_NAMED]) + more


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing a progress bar and a table of keys, which are reported as errors here."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def read_tensors(spec: ModelSpec, prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors of the checkpoint's weight files whose keys start with `prefix`, by the rest of their keys."""
    found: dict[str, torch.Tensor] = {}
    for path in spec.weight_files:
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 - not a mapping
                    found |= {name: file.get_tensor(name) for name in names}
            else:
                tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
                found |= {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        except _UNREADABLE as error:
            raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

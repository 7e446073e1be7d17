"""From the name that a user types to a folder: a local one as it is, a hub id through the cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from cenote.errors import CheckpointError

_SETTINGS = ["*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata", "README.md"]
_HEADS = ["sparse_linear.pt", "colbert_linear.pt", "*/model.safetensors", "*/pytorch_model.bin"]
_SAFETENSORS = ["model.safetensors", "model-*.safetensors", "*/model-*.safetensors"]
_PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin"]
_UNUSED = ["onnx/*", "openvino/*", "coreml/*", "*.onnx", "*.gguf", "*.msgpack", "*.h5", "*.ot", "checkpoint-*/*"]


@dataclass(frozen=True, kw_only=True)
class Located:
    """A checkpoint on this machine. `revision` is the commit of a hub model, `None` for a folder."""

    folder: Path
    name: str
    revision: str | None


def locate(model: str, *, revision: str | None = None) -> Located:
    """Return the folder of `model`: an existing local folder, else a hub id, fetched into the hub's cache.

    A local folder never touches the network. Of a hub model only what is needed is fetched: settings, tokenizer,
    safetensors, and pickled weights only where there are no safetensors. `HF_TOKEN`, `HF_HUB_OFFLINE` and `HF_HOME`
    work as everywhere. Raises `CheckpointError` saying what to do where there is no such folder and no such model.
    """
    folder = Path(model).expanduser()
    if folder.is_dir() and model.strip():
        if revision is not None:
            raise CheckpointError(f"{model} is a local folder and has no revisions; leave --revision {revision} out")
        return Located(folder=folder, name=folder_name(folder), revision=None)
    if folder.is_file():
        raise CheckpointError(
            f"{model} is a file; give the folder that holds config.json, or a hub id such as BAAI/bge-m3"
        )
    if _looks_like_a_path(model):
        raise CheckpointError(f"there is no folder {model}; give an existing folder or a hub id such as BAAI/bge-m3")
    return _from_hub(model, revision)


def folder_name(folder: Path) -> str:
    """Return what a folder is called where it was named: that of a link is its own, not that of what it points to."""
    return os.path.basename(os.path.abspath(folder))


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1 or not model.strip()


def _from_hub(model: str, revision: str | None) -> Located:
    try:
        folder = _download(model, revision, [*_SETTINGS, *_HEADS, *_SAFETENSORS])
        if not any(folder.glob("*.safetensors")) and not any(folder.glob("0_*/*.safetensors")):
            folder = _download(model, revision, [*_SETTINGS, *_HEADS, *_PICKLES])
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise CheckpointError(_advice(model, revision, error)) from error
    return Located(folder=folder, name=model, revision=folder.name)


def _download(model: str, revision: str | None, patterns: list[str]) -> Path:
    return Path(snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=_UNUSED))


def _advice(model: str, revision: str | None, error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        return f"{model} is gated: accept its terms on https://huggingface.co/{model} and set HF_TOKEN to your token"
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is neither a folder nor a hub model {model}; check the spelling, or set HF_TOKEN if it is private"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{model} has no revision {revision!r}; give a branch, a tag or a full commit"
    if isinstance(error, HFValidationError):
        return f"{model!r} is neither an existing folder nor a possible hub id such as BAAI/bge-m3"
    if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled):
        return (
            f"there is no folder {model}, and the hub model of that name is not in the cache and cannot be fetched: "
            f"the hub is out of reach or HF_HUB_OFFLINE is set. Go online once, or give a local folder"
        )
    return f"{model} could not be fetched from the hub: {error}"

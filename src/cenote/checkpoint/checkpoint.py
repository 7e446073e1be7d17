"""An opened checkpoint folder: every file that says what the model is, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cenote.checkpoint.families import family_of
from cenote.checkpoint.jsonfile import MAX_JSON_BYTES, read_object, read_optional_object
from cenote.checkpoint.layout import missing_weights, refuse_adapter, refuse_quantised
from cenote.checkpoint.modules import Module, read_modules
from cenote.checkpoint.native import to_native
from cenote.checkpoint.schema import CONFIG, MODULE_SETTINGS, SETTINGS, Schema, checked
from cenote.checkpoint.source import folder_name
from cenote.checkpoint.vocabulary import TOKENIZER_FILES, Vocabulary
from cenote.checkpoint.weights import Weights, find_weights
from cenote.errors import CheckpointError

_MODULE_SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The names that sentence-transformers tries, in its order."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The files of a checkpoint. `root` is the folder that was asked for, `folder` the backbone's."""

    name: str
    root: Path
    folder: Path
    config: Mapping[str, Any]
    """`config.json` in transformers' spelling."""
    modules: tuple[Module, ...]
    """`modules.json`; empty where the checkpoint has none."""
    settings: Mapping[str, Any]
    """`config_sentence_transformers.json`"""
    module_settings: Mapping[str, Any]
    """`sentence_bert_config.json` or one of its sisters"""
    tokenizer_settings: Mapping[str, Any]
    """`tokenizer_config.json`"""
    vocabulary: Vocabulary
    weights: Weights
    task: str | None
    pooling: str | None
    prompt_family: str | None

    @cached_property
    def model_card(self) -> str:
        """`README.md`; empty where there is none. Only what it quotes word for word says anything, never its prose."""
        path = self.root / "README.md"
        if not path.is_file() or path.stat().st_size > MAX_JSON_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    @property
    def architecture(self) -> str:
        """The class that the weights were saved from, e.g. `BertModel`; the model type where none is named."""
        names = self.config.get("architectures") or ()
        return str(names[0]) if names else str(self.config["model_type"])

    @property
    def hidden_size(self) -> int:
        return self._size(family_of(self.config["model_type"]).hidden_key)

    @property
    def vocab_size(self) -> int:
        return self._size("vocab_size")

    def _size(self, key: str) -> int:
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"{self.folder / 'config.json'} must give {key} as a positive number, not {value!r}")
        return value


def open_checkpoint(
    root: Path,
    *,
    name: str | None = None,
    task: str | None = None,
    pooling: str | None = None,
    prompt_family: str | None = None,
) -> Checkpoint:
    """Read a folder's configuration files and weight headers. `name` is what errors call it and says nothing else.

    Raises `CheckpointError` for a folder that holds no model, or one in a form that Cenote does not run.
    """
    if not root.is_dir():
        raise CheckpointError(f"{root} is not a folder")
    refuse_adapter(root)
    modules = read_modules(root)
    folder = modules[0].folder if modules else root
    module_settings = _module_settings(folder)
    tokenizer_settings = read_optional_object(folder / "tokenizer_config.json")
    return Checkpoint(
        name=name or folder_name(root),
        root=root,
        folder=folder,
        config=_config(folder, module_settings),
        modules=modules,
        settings=_checked(root / "config_sentence_transformers.json", SETTINGS),
        module_settings=module_settings,
        tokenizer_settings=tokenizer_settings,
        vocabulary=_vocabulary(folder, tokenizer_settings),
        weights=_weights(folder),
        task=task,
        pooling=pooling,
        prompt_family=prompt_family,
    )


def _config(folder: Path, module_settings: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        refuse_adapter(folder)
        raise (
            missing_weights(folder)
            if not _has_weights(folder)
            else CheckpointError(
                f"{folder} has no config.json, so what its weights mean is not known; fetch the checkpoint again"
            )
        )
    config = read_object(path)
    refuse_quantised(folder, config)
    changes = module_settings.get("config_args") or module_settings.get("config_kwargs") or {}
    config = config | {key: value for key, value in changes.items() if key != "trust_remote_code"}
    config = to_native(checked(config, CONFIG, str(path)))
    family_of(config.get("model_type"))
    if config.get("is_decoder") is True and not family_of(config["model_type"]).causal:
        raise CheckpointError(f"{path} has is_decoder=true; Cenote runs {config['model_type']} as an encoder only")
    return config


def _checked(path: Path, schema: Schema) -> dict[str, Any]:
    return checked(read_optional_object(path), schema, str(path))


def _module_settings(folder: Path) -> dict[str, Any]:
    for name in _MODULE_SETTINGS:
        settings = _checked(folder / name, MODULE_SETTINGS)
        if settings:
            return settings
    return {}


def _vocabulary(folder: Path, settings: dict[str, Any]) -> Vocabulary:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise CheckpointError(
            f"{folder} has no tokenizer ({', '.join(TOKENIZER_FILES[:3])} ...); fetch the checkpoint again"
        )
    return Vocabulary(folder, settings)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*"))


def _weights(folder: Path) -> Weights:
    weights = find_weights(folder)
    if weights is None:
        raise missing_weights(folder)
    return weights

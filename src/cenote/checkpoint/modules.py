"""`modules.json`: the chain of sentence-transformers modules behind (and around) the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenote.checkpoint.jsonfile import inside, read_list, read_optional_object
from cenote.checkpoint.schema import MODULES, checked
from cenote.errors import CheckpointError

_TRANSFORMERS = ("Transformer", "MLMTransformer")
_SUPPORTED = frozenset(
    {*_TRANSFORMERS, "Pooling", "Dense", "Normalize", "Dropout", "SpladePooling", "MultiVectorMask", "LogitScore"}
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One entry of `modules.json`: its class name, its folder and the `config.json` in it (empty where none)."""

    kind: str
    type: str
    folder: Path
    config: Mapping[str, Any]


def read_modules(root: Path) -> tuple[Module, ...]:
    """Return the modules of a sentence-transformers checkpoint in running order; none where it is not one.

    Raises `CheckpointError` for a module type that Cenote does not run. Nothing is imported: a type is only compared by
    name.
    """
    path = root / "modules.json"
    if not path.is_file():
        return ()
    modules = tuple(_module(root, entry) for entry in read_list(path))
    if not modules or modules[0].kind not in _TRANSFORMERS:
        first = modules[0].type if modules else "nothing"
        raise CheckpointError(f"{path} starts with {first}, not with a Transformer module; Cenote cannot run it")
    if sum(module.kind in _TRANSFORMERS for module in modules) > 1:
        raise CheckpointError(f"{path} lists more than one Transformer module; Cenote runs one")
    return modules


def _module(root: Path, entry: object) -> Module:
    source = str(root / "modules.json")
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise CheckpointError(f"{source} holds an entry without a type: {entry!r}; the file is damaged")
    kind = _kind(entry["type"])
    folder = inside(root, entry.get("path", ""), source)
    if not folder.is_dir() and kind not in ("Normalize", "Dropout"):
        raise CheckpointError(f"{source} names the module folder {entry['path']!r}, which is missing; fetch it again")
    path = folder / "config.json"
    config = {} if kind in _TRANSFORMERS else checked(read_optional_object(path), MODULES, str(path))
    return Module(kind=kind, type=entry["type"], folder=folder, config=config)


def _kind(type_name: str) -> str:
    package, _, kind = type_name.split(".", 1)[0], None, type_name.rsplit(".", 1)[-1]
    known = package == "sentence_transformers" and kind in _SUPPORTED
    if not known and not (package == "pylate" and kind == "Dense"):
        raise CheckpointError(
            f"modules.json asks for the module {type_name!r}, which Cenote does not run; it runs "
            f"sentence-transformers' {', '.join(sorted(_SUPPORTED))}"
        )
    return kind

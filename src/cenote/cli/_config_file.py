"""`cenote.toml`: the options of `cenote serve` in a file, under the names that they have everywhere.

Flags come before the environment, the environment before the file, and the file before the defaults. In the file, the
options of a model come before those at the top, which are for all models.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenote.config import EngineOptions, ServerOptions
from cenote.errors import OptionError

_MODELS = "models"
_KINDS: Mapping[str, tuple[type, str]] = {
    "int": (int, "a whole number"),
    "bool": (bool, "true or false"),
    "str": (str, "a string"),
    "tuple[str, ...]": (tuple, "a list of strings"),
}


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One model: a folder or hub id, the name that clients ask for, and options of its own."""

    model: str
    name: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """What a file sets. `server` and `engine` have the names of the fields of `ServerOptions` and `EngineOptions`."""

    server: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    engine: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    models: tuple[ModelEntry, ...] = ()


def read_config(path: Path) -> ConfigFile:
    """Read a file. Raises `OptionError` that names the file and the key for anything that is not an option."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return _checked(values)
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} is not TOML: {error}") from None
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def _checked(values: dict[str, Any]) -> ConfigFile:
    server, engine = _fields(ServerOptions), _fields(EngineOptions)
    if "name" in values:
        raise OptionError(f"`name` belongs to a model: put it under [[{_MODELS}]]")
    del server["name"]
    known = {**server, **engine}
    entries = values.pop(_MODELS, [])
    found = {key: _value(key, value, known, (*known, _MODELS)) for key, value in values.items()}
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f"`{_MODELS}` must be tables: each model begins with [[{_MODELS}]]")
    file = ConfigFile(
        server={key: value for key, value in found.items() if key in server},
        engine={key: value for key, value in found.items() if key in engine},
        models=tuple(_entry(f"{_MODELS}[{index}].", entry, engine) for index, entry in enumerate(entries)),
    )
    ServerOptions(**file.server)
    for each in file.models or (ModelEntry(model=""),):
        EngineOptions(**{**file.engine, **each.options})
    return file


def _entry(place: str, entry: dict[str, Any], engine: Mapping[str, str]) -> ModelEntry:
    known = {"model": "str", "name": "str", **engine}
    found = {key: _value(place + key, value, known, known) for key, value in entry.items()}
    if "model" not in found:
        raise OptionError(f"`{place}model` is missing: it is the model's folder or hub id")
    return ModelEntry(model=found.pop("model"), name=found.pop("name", None), options=found)


def _value(place: str, value: Any, known: Mapping[str, str], names: Iterable[str]) -> Any:
    """Return the value of an option, by its key, the last part of `place`."""
    key = place.rpartition(".")[2] if place.startswith(f"{_MODELS}[") else place
    if key not in known:
        near = [f"`{name}`" for name in difflib.get_close_matches(key, names, n=2)]
        raise OptionError(f"`{place}` is not an option{'; did you mean ' + ' or '.join(near) + '?' if near else ''}")
    kind, words = _KINDS[known[key].removesuffix(" | None")]
    if kind is tuple:
        value = tuple([value] if isinstance(value, str) else value if isinstance(value, list) else [None])
        if all(isinstance(item, str) for item in value):
            return value
    elif type(value) is kind:
        return value
    raise OptionError(f"`{place}` must be {words}")


def _fields(options_type: type) -> dict[str, str]:
    return {field.name: str(field.type) for field in dataclasses.fields(options_type)}

"""Options: what a user may ask for. One field is one keyword, one flag, one environment variable and one line of docs.

What was decided from them is another type: `cenote.checkpoint.decide.Decisions`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cenote.errors import OptionError

T = TypeVar("T")

DTYPES = ("auto", "float32", "float16", "bfloat16")


def option(default: Any, *, help: str, env: str | None = None) -> Any:  # noqa: A002
    """Declare one option: its only default, its only help text and its environment variable, if it has one."""
    return dataclasses.field(default=default, metadata={"help": help, "env": env})


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a checkpoint is loaded and run."""

    device: str = option("auto", help="Device: auto, cpu, cuda or cuda:N.", env="CENOTE_DEVICE")
    dtype: str = option(
        "auto", help="Number type of the weights: auto, float32, float16, bfloat16.", env="CENOTE_DTYPE"
    )
    pooling: str | None = option(
        None,
        help="Pooling of the dense embedding where the checkpoint says nothing: cls, last, mean.",
        env="CENOTE_POOLING",
    )
    task: str | None = option(
        None,
        help="Task of the model where the checkpoint leaves it open: embed, classify ....",
        env="CENOTE_TASK",
    )
    revision: str | None = option(None, help="Branch, tag or commit of a hub model.", env="CENOTE_REVISION")
    max_length: int | None = option(
        None, help="Longest text in tokens, at most the checkpoint's own limit.", env="CENOTE_MAX_LENGTH"
    )
    max_batch_tokens: int | None = option(
        None, help="Most tokens in one step. Longer texts are then out of the limit.", env="CENOTE_MAX_BATCH_TOKENS"
    )
    any_dimensions: bool = option(
        False,
        help="Allow smaller `dimensions` on a model that was not trained for them (matryoshka).",
        env="CENOTE_ANY_DIMENSIONS",
    )
    threads: int | None = option(
        None, help="Compute threads of the process on a CPU; all cores by default.", env="CENOTE_THREADS"
    )
    cuda_graphs: bool = option(
        False,
        help="Replay small steps on a GPU as CUDA graphs; off until that has been measured on one.",
        env="CENOTE_CUDA_GRAPHS",
    )
    verify: bool | None = option(
        None,
        help="Compare with plain transformers at start and refuse on a mismatch; by default for small models only.",
        env="CENOTE_VERIFY",
    )

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise OptionError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")
        for name in ("max_length", "max_batch_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How the HTTP server listens and what it accepts."""

    host: str = option("127.0.0.1", help="Address to listen on; 0.0.0.0 for every network.", env="CENOTE_HOST")
    port: int = option(8000, help="Port to listen on; 0 takes a free one.", env="CENOTE_PORT")
    name: tuple[str, ...] = option(
        (),
        help="Name that clients ask for, one for each model in their order; by default the model's own name.",
        env="CENOTE_NAME",
    )
    max_body_bytes: int = option(
        32 * 1024 * 1024,
        help="Largest request body in bytes; a larger one is answered with 413.",
        env="CENOTE_MAX_BODY_BYTES",
    )
    max_items: int = option(2048, help="Most texts in one request.", env="CENOTE_MAX_ITEMS")
    shutdown_timeout: int = option(
        30,
        help="Seconds that running requests get to finish when the server is stopped.",
        env="CENOTE_SHUTDOWN_TIMEOUT",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise OptionError(f"port must be between 0 and 65535, not {self.port}")
        for name in ("max_body_bytes", "max_items"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.shutdown_timeout < 0:
            raise OptionError(f"shutdown_timeout must not be negative, but is {self.shutdown_timeout}")
        if any(not name.strip() for name in self.name) or len(set(self.name)) != len(self.name):
            raise OptionError(f"name must be different, non-empty names, not {', '.join(map(repr, self.name))}")


def from_keywords(options_type: type[T], keywords: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> T:
    """Build `options_type` from keywords, then the environment, then the defaults.

    Unknown keywords raise `OptionError` and name the known ones.
    """
    known = {field.name: field for field in dataclasses.fields(options_type)}  # type: ignore[arg-type]
    unknown = [name for name in keywords if name not in known]
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; known options: {', '.join(known)}")
    env = os.environ if environ is None else environ
    values = {
        name: _parse(env[field.metadata["env"]], str(field.type), field.metadata["env"])
        for name, field in known.items()
        if field.metadata.get("env") in env
    }
    return options_type(**{**values, **keywords})


def _parse(text: str, annotation: str, variable: str) -> Any:
    kind = annotation.split(" | ", maxsplit=1)[0]
    if kind == "int":
        if not text.lstrip("-").isdigit():
            raise OptionError(f"environment variable {variable} must be a whole number, not {text!r}")
        return int(text)
    if kind == "bool":
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() not in words:
            raise OptionError(f"environment variable {variable} must be true or false, not {text!r}")
        return words[text.lower()]
    return text

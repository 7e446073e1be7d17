"""Options: what a user may ask for. One field is one keyword, one flag, one environment variable and one line of docs.

What was decided from them is another type: `cenote.checkpoint.decide.Decisions`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cenote.errors import OptionError

T = TypeVar("T")

_KEY = re.compile(r"[\x21-\x7e]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+|null")

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
DTYPES = ("auto", "float32", "float16", "bfloat16", "int8")


def option(default: Any, *, help: str, env: str | None = None, is_secret: bool = False) -> Any:  # noqa: A002
    """Declare one option: its only default, its only help text and its environment variable, if it has one.

    A secret one is left out where the options are shown.
    """
    return dataclasses.field(default=default, metadata={"help": help, "env": env}, repr=not is_secret)


def as_option(name: str, *values: str) -> str:
    """Return how an option is spelled at both doors, for errors: `--task rerank (in Python task='rerank')`.

    Several `values` are a choice; none is a switch.
    """
    flag = " ".join([f"--{name.replace('_', '-')}", *(["|".join(values)] if values else [])])
    value = "True" if not values else repr(values[0]) if len(values) == 1 else "..."
    return f"{flag} (in Python {name}={value})"


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a checkpoint is loaded and run."""

    device: str = option("auto", help="Device: auto, cpu, cuda or cuda:N.", env="CENOTE_DEVICE")
    dtype: str = option(
        "auto",
        help="Number type of the weights: auto, float32, float16, bfloat16, int8 (CPU only).",
        env="CENOTE_DTYPE",
    )
    pooling: str | None = option(
        None,
        help="Pooling of the dense embedding where the checkpoint says nothing: cls, last, mean.",
        env="CENOTE_POOLING",
    )
    task: str | None = option(
        None,
        help="What the model is for where its files leave it open: embed, embed_sparse, token_embed, classify, "
        "token_classify, rerank, reward.",
        env="CENOTE_TASK",
    )
    prompt_family: str | None = option(
        None,
        help="Prompt in which a language model scores pairs, where its files do not say: qwen3-reranker, "
        "mxbai-rerank-v2, bge-reranker-v2-gemma.",
        env="CENOTE_PROMPT_FAMILY",
    )
    revision: str | None = option(None, help="Branch, tag or commit of a hub model.", env="CENOTE_REVISION")
    max_length: int | None = option(
        None, help="Longest text in tokens, at most the checkpoint's own limit.", env="CENOTE_MAX_LENGTH"
    )
    max_batch_tokens: int | None = option(
        None, help="Most tokens in one step. Longer texts are then out of the limit.", env="CENOTE_MAX_BATCH_TOKENS"
    )
    max_queue_tokens: int | None = option(
        None,
        help="Most tokens that wait for a model; a request over it is refused as busy. 0 is no limit. "
        "By default 4194304 in a server and no limit in Python.",
        env="CENOTE_MAX_QUEUE_TOKENS",
    )
    step_ms: int | None = option(
        None,
        help="Milliseconds that a step on a CPU should take: longer ones have more throughput, and others wait longer. "
        "By default 100 in a server and AsyncEngine, 400 in Engine and the other commands.",
        env="CENOTE_STEP_MS",
    )
    stall_seconds: int = option(
        60,
        help="Seconds after which a step that is not finished counts as stuck: the server is unhealthy then.",
        env="CENOTE_STALL_SECONDS",
    )
    any_dimensions: bool = option(
        False,
        help="Allow smaller `dimensions` on a model whose files do not say that it was trained for them (matryoshka).",
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
        for name in ("max_length", "max_batch_tokens", "threads", "step_ms", "stall_seconds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, not {value}")
        if self.max_queue_tokens is not None and self.max_queue_tokens < 0:
            raise OptionError(f"max_queue_tokens must not be negative, but is {self.max_queue_tokens}")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How the HTTP server listens and what it accepts."""

    host: str = option("127.0.0.1", help="Address to listen on; 0.0.0.0 for every network.", env="CENOTE_HOST")
    port: int = option(8000, help="Port to listen on; 0 takes a free one.", env="CENOTE_PORT")
    uds: str | None = option(None, help="Listen on a Unix socket at this path, not on a port.", env="CENOTE_UDS")
    ssl_certfile: str | None = option(
        None, help="Speak TLS, with the certificate (and its chain) in this PEM file.", env="CENOTE_SSL_CERTFILE"
    )
    ssl_keyfile: str | None = option(
        None, help="The certificate's private key, where its file does not hold it.", env="CENOTE_SSL_KEYFILE"
    )
    name: tuple[str, ...] = option(
        (),
        help="Name that clients ask for, one for each model in their order; by default the model's own name.",
        env="CENOTE_NAME",
    )
    api_key: tuple[str, ...] = option(
        (),
        help="Key that clients must send; several are possible. Commas stand between them in the variable.",
        env="CENOTE_API_KEY",
        is_secret=True,
    )
    api_key_file: str | None = option(
        None, help="File with more keys, one on each line; # starts a comment line.", env="CENOTE_API_KEY_FILE"
    )
    metrics_without_key: bool = option(
        False, help="Let everybody read /metrics where keys are set.", env="CENOTE_METRICS_WITHOUT_KEY"
    )
    cors_origin: tuple[str, ...] = option(
        (),
        help="Origin of web pages that may call the server, such as https://example.com; * is all of them.",
        env="CENOTE_CORS_ORIGIN",
    )
    admin: bool = option(
        False,
        help="Let whoever has a key load and unload models: POST /admin/models, DELETE /admin/models/NAME.",
        env="CENOTE_ADMIN",
    )
    log_format: str = option("text", help="Form of the log lines: text or json.", env="CENOTE_LOG_FORMAT")
    log_level: str = option(
        "info", help="Least level of the log: debug, info, warning, error. Requests are info.", env="CENOTE_LOG_LEVEL"
    )
    max_body_bytes: int = option(
        32 * 1024 * 1024,
        help="Largest request body in bytes; a larger one is answered with 413.",
        env="CENOTE_MAX_BODY_BYTES",
    )
    max_items: int = option(2048, help="Most texts in one request.", env="CENOTE_MAX_ITEMS")
    request_timeout: int = option(
        600,
        help="Seconds from a request's headers to its answer, its body included; 0 is no limit.",
        env="CENOTE_REQUEST_TIMEOUT",
    )
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
        for name in ("request_timeout", "shutdown_timeout"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} must not be negative, but is {getattr(self, name)}")
        self._check_words()
        self._check_access()

    def _check_words(self) -> None:
        for name, known in (("log_format", LOG_FORMATS), ("log_level", LOG_LEVELS)):
            if getattr(self, name) not in known:
                raise OptionError(f"{name} {getattr(self, name)!r} is not one of {', '.join(known)}")
        if any(not name.strip() for name in self.name) or len(set(self.name)) != len(self.name):
            raise OptionError(f"name must be different, non-empty names, not {', '.join(map(repr, self.name))}")

    def _check_access(self) -> None:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise OptionError("ssl_keyfile needs ssl_certfile, the certificate that it belongs to")
        for number, key in enumerate(self.api_key, start=1):
            if not _KEY.fullmatch(key):
                raise OptionError(f"api_key number {number} must be printable ASCII without spaces, and not empty")
        for origin in self.cors_origin:
            if not _ORIGIN.fullmatch(origin):
                raise OptionError(f"cors_origin {origin!r} must be * or like https://example.com:8080, without a path")


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
    return split_words(text) if kind.startswith("tuple") else text


def split_words(text: str) -> tuple[str, ...]:
    """Return what stands between the commas of a variable with several values; an empty one is one empty value."""
    return tuple(word for word in map(str.strip, text.split(",")) if word) or ("",)

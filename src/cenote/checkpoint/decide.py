"""From what a checkpoint says, what the user asked and what the device can do, to what will be done, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cenote.checkpoint.spec import ModelSpec
from cenote.config import EngineOptions
from cenote.errors import OptionError
from cenote.params import Task

ACCELERATOR_STEP_TOKENS = 16_384
CPU_STEP_TOKENS = 1_024
"""The first guess; the runtime measures the real figure when it warms up."""

_NO_FLOAT16 = ("gemma",)
"""Families whose activations overflow float16."""


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What the chosen device is: `kind` is `cpu` or `cuda`, `name` the string that torch takes."""

    kind: str
    name: str
    description: str
    bfloat16: bool
    reason: str
    amx: bool = False
    """A CPU that multiplies bfloat16 in hardware"""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision and its reason."""

    what: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What will be done with a checkpoint.

    A step is filled up to `step_tokens`; a longer sequence, up to `max_length`, runs alone or in chunks.
    """

    device: str
    dtype: str
    max_length: int
    step_tokens: int
    tasks: tuple[Task, ...]
    decisions: tuple[Decision, ...]

    @property
    def loaded_dtype(self) -> str:
        """The number type in which the weights are read: int8 is made from float32."""
        return "float32" if self.dtype == "int8" else self.dtype

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def with_step(self, measured: Decision) -> Decisions:
        """Put a measured size of a step in place of the first guess."""
        others = tuple(measured if decision.what == measured.what else decision for decision in self.decisions)
        return replace(self, step_tokens=int(measured.value), decisions=others)

    def also(self, decision: Decision) -> Decisions:
        """Add a decision that was taken later."""
        return replace(self, decisions=(*self.decisions, decision))


def decide(spec: ModelSpec, options: EngineOptions, facts: DeviceFacts) -> Decisions:
    """Take every decision about serving `spec`. Pure: it reads nothing but its arguments."""
    dtype = _dtype(spec, options, facts)
    max_length = _max_length(spec, options)
    step = _step_tokens(options, facts)
    return Decisions(
        device=facts.name,
        dtype=dtype.value,
        max_length=int(max_length.value),
        step_tokens=int(step.value),
        tasks=spec.tasks,
        decisions=(
            Decision(what="device", value=facts.name, reason=facts.reason),
            dtype,
            Decision(what="tasks", value=", ".join(spec.tasks), reason="parts found in the checkpoint"),
            _chunks(spec),
            max_length,
            step,
        ),
    )


def runs_in_chunks(spec: ModelSpec) -> bool:
    """Return whether a long text may be run in several steps: causal attention, and no mean or first row to pool."""
    return spec.is_causal and (spec.embed is None or spec.embed.modes == ("last",))


def _chunks(spec: ModelSpec) -> Decision:
    if runs_in_chunks(spec):
        return Decision(what="chunked_prefill", value="on", reason="causal, pooled from the last row or from every row")
    reason = "the pooling needs all rows at once" if spec.is_causal else "every row attends to the whole text"
    return Decision(what="chunked_prefill", value="off", reason=reason)


def _dtype(spec: ModelSpec, options: EngineOptions, facts: DeviceFacts) -> Decision:
    if options.dtype != "auto":
        if options.dtype == "float16" and spec.model_type.startswith(_NO_FLOAT16):
            raise OptionError(f"{spec.model_type} overflows float16; use bfloat16 or float32")
        if options.dtype == "int8" and facts.kind != "cpu":
            raise OptionError("dtype int8 runs on a CPU only; on a GPU use float16 or bfloat16")
        return Decision(what="dtype", value=options.dtype, reason="asked for")
    if facts.kind == "cpu" and facts.amx:
        return Decision(what="dtype", value="bfloat16", reason="the CPU has AMX, which multiplies bfloat16")
    if facts.kind == "cpu":
        reason = "the CPU has no AMX; int8 is faster and less exact"
        return Decision(what="dtype", value="float32", reason=reason)
    stored = str(spec.config.get("dtype") or spec.config.get("torch_dtype") or "float32").removeprefix("torch.")
    if stored == "bfloat16" and facts.bfloat16:
        return Decision(what="dtype", value="bfloat16", reason="the checkpoint's own")
    if spec.model_type.startswith(_NO_FLOAT16):
        value = "bfloat16" if facts.bfloat16 else "float32"
        return Decision(what="dtype", value=value, reason=f"{spec.model_type} overflows float16")
    return Decision(what="dtype", value="float16", reason=f"half precision on {facts.description}; stored as {stored}")


def _max_length(spec: ModelSpec, options: EngineOptions) -> Decision:
    own, reason = spec.text.max_length, spec.text.max_length_reason
    if options.max_length is not None:
        if options.max_length > own:
            raise OptionError(f"max_length {options.max_length} is over the checkpoint's limit of {own} ({reason})")
        own, reason = options.max_length, f"asked for; the checkpoint allows {own}"
    if options.max_batch_tokens is not None and options.max_batch_tokens < own and not runs_in_chunks(spec):
        own, reason = options.max_batch_tokens, f"lowered from {own}: a text must fit into max_batch_tokens"
    return Decision(what="max_length", value=str(own), reason=reason)


def _step_tokens(options: EngineOptions, facts: DeviceFacts) -> Decision:
    if options.max_batch_tokens is not None:
        value, reason = options.max_batch_tokens, "asked for by max_batch_tokens"
    elif facts.kind == "cpu":
        value, reason = CPU_STEP_TOKENS, "a guess: the engine measures what the CPU runs in a step's time"
    else:
        value, reason = ACCELERATOR_STEP_TOKENS, "fills the accelerator"
    return Decision(what="step_tokens", value=str(value), reason=reason)

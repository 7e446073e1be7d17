"""A checkpoint, opened: read, decided, loaded, rewritten, warmed up, measured, and put on a loop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from cenote.checkpoint import read_model
from cenote.checkpoint.decide import Decision, Decisions, DeviceFacts, decide
from cenote.checkpoint.spec import ModelSpec
from cenote.config import EngineOptions
from cenote.core import Core, EngineInfo
from cenote.errors import OptionError
from cenote.models.graphs import GraphedBackbone
from cenote.models.load import LoadedModel, load_model
from cenote.models.rewrite import rewrite
from cenote.models.verify import verify_model
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice, CudaDevice, Device, device_facts, open_device
from cenote.runtime.lane import Lane
from cenote.runtime.loop import Loop
from cenote.runtime.memory import check_step_memory, free_memory, measure_step_memory
from cenote.runtime.pace import CPU_STEP_SECONDS, Pace
from cenote.runtime.runner import ModelRunner
from cenote.runtime.threaded import INT8_SHARED_TOKENS, ThreadedRunner
from cenote.runtime.warmup import measure_pace, warm_up
from cenote.text.encoder import TextEncoder

VERIFY_MAX_PARAMETERS = 150_000_000
"""Models up to this size are compared with plain transformers at start unless the caller says otherwise."""


def open_core(model: str, options: EngineOptions, loop: Loop) -> Core:
    """Open the checkpoint `model`, a folder or a hub id, and start serving it on `loop`.

    Raises `CheckpointError` or `OptionError` where it cannot be served right.
    """
    spec = read_model(model, options)
    facts = device_facts(options.device)
    decisions = decide(spec, options, facts)
    if options.threads is not None:
        loop.call(partial(torch.set_num_threads, options.threads))
    runner, decisions = _load(spec, options, facts, decisions)
    lane, decisions = loop.call(lambda: _start(runner, options, decisions))
    loop.add(lane)
    return Core(
        spec=spec,
        info=_info(spec, runner.model, decisions),
        encoder=TextEncoder(spec.text, vocab_size=spec.vocab_size, max_length=decisions.max_length),
        lane=lane,
        loop=loop,
    )


def _load(
    spec: ModelSpec, options: EngineOptions, facts: DeviceFacts, decisions: Decisions
) -> tuple[ModelRunner, Decisions]:
    """Load and check the model on the caller's thread: other models on the loop are served meanwhile."""
    device = open_device(facts)
    loaded = load_model(spec, dtype=getattr(torch, decisions.loaded_dtype), device=device.torch_device)
    verify = loaded.num_parameters <= VERIFY_MAX_PARAMETERS if options.verify is None else options.verify
    if verify:
        verify_model(loaded, spec)
    if (rewritten := rewrite(loaded, decisions.dtype)) is not None:
        decisions = decisions.also(rewritten)
    pooler = build_pooler(spec, loaded, any_dimensions=options.any_dimensions)
    num_threads = options.threads or torch.get_num_threads()
    if isinstance(device, CpuDevice) and num_threads > 1:
        least_shared = INT8_SHARED_TOKENS if decisions.dtype == "int8" else 1
        return ThreadedRunner(loaded, pooler, device, num_threads, least_shared), decisions
    return ModelRunner(loaded, pooler, device), decisions


def _start(runner: ModelRunner, options: EngineOptions, decisions: Decisions) -> tuple[Lane, Decisions]:
    """Warm the model up and measure it, on the thread of the loop, which nothing else may run beside."""
    if options.cuda_graphs:
        runner.model = _graphed(runner.model, runner.device)
    tasks, max_length = decisions.tasks, decisions.max_length
    warm_up(runner, tasks, step_tokens=decisions.step_tokens, max_length=max_length)
    pace = None
    if runner.device.torch_device.type == "cpu":
        if runner.num_workers > 1 or options.max_batch_tokens is None:
            pace = measure_pace(runner, tasks[0], max_length, step_seconds=_step_seconds(options))
            runner, decisions, pace = _shared_if_slow(runner, decisions, pace)
        decisions, pace = _sized(runner, options, decisions, pace)
    lane = Lane(
        runner=runner,
        step_tokens=decisions.step_tokens,
        pace=pace,
        max_queue_tokens=options.max_queue_tokens,
        stall_seconds=options.stall_seconds,
    )
    return lane, decisions


def _info(spec: ModelSpec, loaded: LoadedModel, decisions: Decisions) -> EngineInfo:
    attention = Decision(what="attention", value=loaded.attention.path, reason=loaded.attention.reason)
    return EngineInfo(
        name=spec.name,
        architecture=spec.architecture,
        tasks=spec.tasks,
        dimensions=spec.embed.dimensions if spec.embed else None,
        max_length=decisions.max_length,
        prompts=tuple(spec.text.prompts),
        dtype=decisions.dtype,
        device=decisions.device,
        num_parameters=loaded.num_parameters,
        decisions=(*decisions, attention),
        facts=spec.facts,
        unused_weights=tuple(loaded.unused_weights),
    )


@torch.inference_mode()
def _graphed(loaded: LoadedModel, device: Device) -> LoadedModel:
    """Return `loaded` with its small steps recorded; the graphs take their memory before the warm-up tries its step."""
    if not isinstance(device, CudaDevice) or loaded.attention.path != "varlen":
        raise OptionError(
            f"cuda_graphs needs a GPU and the variable-length attention; this model runs on {device.torch_device} "
            f"with {loaded.attention.path!r} ({loaded.attention.reason})"
        )
    backbone = GraphedBackbone(loaded.backbone, uses_token_types=loaded.uses_token_types)
    backbone.capture(device.torch_device, device.capture)
    return replace(loaded, backbone=backbone)


def _step_seconds(options: EngineOptions) -> float:
    return CPU_STEP_SECONDS if options.step_ms is None else options.step_ms / 1000


def _shared_if_slow(runner: ModelRunner, decisions: Decisions, pace: Pace) -> tuple[ModelRunner, Decisions, Pace]:
    """Give each step all threads where one alone is too slow for the model."""
    if runner.num_workers == 1 or not pace.is_slow:
        return runner, decisions, pace
    reason = f"one thread alone runs {pace.tokens_per_second:.0f} tokens a second"
    decisions = decisions.also(Decision(what="threads_per_step", value="all", reason=reason))
    return ModelRunner(runner.model, runner.pooler, runner.device), decisions, pace.shared(runner.num_workers)


def _sized(
    runner: ModelRunner, options: EngineOptions, decisions: Decisions, pace: Pace | None
) -> tuple[Decisions, Pace | None]:
    """Decide how large a step on a CPU is: what was asked for, or what fits into the memory, at the model's pace."""
    max_length, asked = decisions.max_length, options.max_batch_tokens
    memory, free = measure_step_memory(runner, decisions.tasks, max_length), free_memory()
    check_step_memory(memory, max(asked or 0, max_length), max_length, free)
    if asked is not None:
        pace, most_tokens = None, decisions.step_tokens
    else:
        assert pace is not None
        most_tokens = min(pace.most_tokens, memory.most_tokens(free, max_length))
        pace = replace(pace, most_tokens=most_tokens)
        step_ms = round(_step_seconds(options) * 1000)
        reason = f"about {step_ms} ms a step: measured at start, and kept up to date"
        decisions = decisions.with_step(Decision(what="step_tokens", value=str(pace.step_tokens), reason=reason))
    largest = max(most_tokens, max_length)
    bound = memory.bound(largest, max_length)
    steps = "a step" if runner.num_workers == 1 else f"{runner.num_workers} steps at a time"
    reason = f"at most, for {steps} of {largest} tokens: computed from small ones; {free / 2**30:.1f} GiB are free"
    step_memory = Decision(what="step_memory", value=f"{bound / 2**20:.0f} MiB", reason=reason)
    return decisions.also(step_memory), pace

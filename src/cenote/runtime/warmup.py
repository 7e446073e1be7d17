"""Run every task once before the first request, through the same code as any step."""

from __future__ import annotations

import time

from cenote.errors import CenoteError, CheckpointError
from cenote.params import Task
from cenote.runtime.made_up import made_up_texts
from cenote.runtime.memory import is_out_of_memory
from cenote.runtime.pace import Pace
from cenote.runtime.runner import ModelRunner

CPU_WARMUP_TOKENS = 64
CPU_PROBE_TOKENS = 256


def warm_up(runner: ModelRunner, tasks: tuple[Task, ...], *, step_tokens: int, max_length: int) -> None:
    """Run the largest step of every task on an accelerator, a small one on a CPU.

    Running out of memory here raises `CheckpointError` that says which option to lower.
    """
    on_cpu = runner.device.torch_device.type == "cpu"
    num_tokens = min(CPU_WARMUP_TOKENS, step_tokens) if on_cpu else max(step_tokens, max_length)
    for task in tasks:
        try:
            _step(runner, task, num_tokens, max_length)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise CheckpointError(
                f"out of memory while warming up {task!r} with a step of {num_tokens} tokens: "
                "lower max_batch_tokens or max_length"
            ) from error


def measure_pace(runner: ModelRunner, task: Task, max_length: int, *, step_seconds: float) -> Pace:
    """Return the speed of each worker in the faster of two rounds; steps are to take `step_seconds`."""
    seconds = min(_step(runner, task, CPU_PROBE_TOKENS, max_length) for _ in range(2))
    return Pace(tokens_per_second=CPU_PROBE_TOKENS / seconds, step_seconds=step_seconds)


def _step(runner: ModelRunner, task: Task, num_tokens: int, max_length: int) -> float:
    """Run a step of about `num_tokens` made-up tokens on every worker and return the seconds."""
    length = min(64, max_length)
    pieces = made_up_texts(runner, task, length=length, number=max(1, num_tokens // length))
    started = time.perf_counter()
    for step in [runner.launch(pieces) for _ in range(runner.num_workers)]:
        if any(isinstance(result, CenoteError) for result in step.result()):
            raise CheckpointError(f"the model gave no finite numbers while warming up {task!r}; try dtype float32")
    return time.perf_counter() - started

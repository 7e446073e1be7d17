"""Audit a checkpoint: its model and its poolers, built on `meta`, run real steps through the real runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from cenote.audit.clean import read_clean_ops
from cenote.audit.judge import Judge
from cenote.audit.known import read_known
from cenote.audit.options import TAG, wishes
from cenote.audit.pooler_steps import LENGTHS, Chunked, chunked_steps, whole_steps
from cenote.audit.report import Report
from cenote.audit.watch import SyncWatch
from cenote.checkpoint.spec import ModelSpec
from cenote.models.load import load_model
from cenote.params import PoolingParams, QueryVectors, Task, TaskParams
from cenote.pooling.build import build_pooler
from cenote.runtime.device_meta import MetaDevice
from cenote.runtime.request import Piece, Sequence, SequenceState
from cenote.runtime.runner import ModelRunner, batch_order, with_updates

DTYPES = (torch.float16, torch.float32)
"""Half precision takes a card's fused attention, single precision the other path."""


def audit_model(spec: ModelSpec, dtypes: Many[torch.dtype] = DTYPES) -> Report:
    """Run every kind of step of `spec` on `meta` and report what would make a GPU and the CPU wait for each other.

    No weight of the model is read. Raises `CheckpointError` where the checkpoint cannot be built.
    """
    watch = SyncWatch(Judge("meta", read_clean_ops()))
    steps: list[str] = []
    for dtype in dtypes:
        model = load_model(spec, dtype=dtype, device=torch.device("meta"))
        runner = ModelRunner(model, build_pooler(spec, model, any_dimensions=True), MetaDevice())
        name = f"{str(dtype).removeprefix('torch.')}, attention by {model.attention.path}"
        steps += [f"{name}: {step}" for step in run_steps(runner, spec, watch)]
    return Report.of(spec.name, steps, watch.findings, read_known())


def run_steps(runner: ModelRunner, spec: ModelSpec, watch: SyncWatch) -> Iterator[str]:
    """Run every step under `watch` and yield its name: whole steps first, then the poolers alone, option by option."""
    asked = asked_of(runner, spec)
    for name, pieces in model_steps(runner, spec, asked):
        with watch:
            runner.launch(pieces).result()
        yield name
    with torch.inference_mode():
        for task in spec.tasks:
            alone = Chunked(runner.pooler, task, runner.model.hidden_size, runner.model.dtype)
            yield from whole_steps(alone, asked[task], watch)
            yield from chunked_steps(alone, watch)


def asked_of(runner: ModelRunner, spec: ModelSpec) -> dict[Task, list[PoolingParams]]:
    """Return what callers can wish of each task; documents may also be scored against a query's vectors."""
    asked = {task: wishes(task, partial(runner.pooler.verify_params, task)) for task in spec.tasks}
    if spec.token_embed is not None:
        query = QueryVectors(np.zeros((3, spec.token_embed.dimensions), dtype=np.float32))
        asked["token_embed"].append(PoolingParams(task="token_embed", input_type="document", query_vectors=query))
    return asked


def model_steps(
    runner: ModelRunner, spec: ModelSpec, asked: Mapping[Task, Many[PoolingParams]]
) -> Iterator[tuple[str, list[Piece]]]:
    """Yield steps of the whole model: each task for one text and for many, in chunks where it can be, and mixed."""
    build = _Builder(runner, spec)
    for task in spec.tasks:
        plain: TaskParams = {task: PoolingParams(task=task)}
        yield f"one text, {task}", [build.piece(plain, 9)]
        yield f"{len(LENGTHS)} texts, {task}", [build.piece(plain, length) for length in LENGTHS]
        if runner.model.is_causal and runner.pooler.supports_chunks(plain):
            first, last = build.chunks(plain, 9)
            yield f"first chunk, {task}", [build.piece(plain, 4), first]
            yield f"last chunk, {task}", [last, build.piece(plain, 4)]
        if runner.model.is_causal and not runner.pooler.needs_all_rows(plain):
            yield f"texts that begin alike, {task}", build.alike(plain, (20, 24, 20))
    every_task: TaskParams = {task: PoolingParams(task=task) for task in spec.tasks}
    one_wish_each: list[TaskParams] = [{task: params} for task in spec.tasks for params in asked[task]]
    mixed = [build.piece(params, length) for params in (every_task, *one_wish_each) for length in (1, 9)]
    yield "tasks and options mixed", sorted(mixed, key=batch_order)
    yield "texts that are filled up", [build.piece(every_task, 9, num_keys=5), build.piece(every_task, 6)]


class _Builder:
    """Makes sequences of a model; all hold the mark of a step but for the shortest."""

    def __init__(self, runner: ModelRunner, spec: ModelSpec) -> None:
        self._pooler = runner.pooler
        self._uses_token_types = runner.model.uses_token_types
        self._max_length = spec.text.max_length

    def sequence(self, params: TaskParams, length: int, num_keys: int | None = None) -> Sequence:
        length = min(length, self._max_length)
        ids_np = np.full(length, TAG)
        ids_np[::2] = TAG + 2
        return Sequence(
            token_ids=ids_np,
            params=with_updates(params, self._pooler),
            token_type_ids=np.arange(length) // 2 % 2 if self._uses_token_types else None,
            num_keys=length if num_keys is None else num_keys,
        )

    def piece(self, params: TaskParams, length: int, num_keys: int | None = None) -> Piece:
        """Return a sequence that runs whole."""
        sequence = self.sequence(params, length, num_keys)
        return Piece(sequence=sequence, stop=len(sequence))

    def alike(self, params: TaskParams, lengths: Many[int]) -> list[Piece]:
        """Return sequences with a long common prefix that compute it once."""
        sequences = [replace(self.sequence(params, length), shares_prefix=True) for length in lengths]
        return [Piece(sequence=sequence, stop=len(sequence)) for sequence in sequences]

    def chunks(self, params: TaskParams, length: int) -> tuple[Piece, Piece]:
        """Return a sequence that runs in two steps."""
        sequence = self.sequence(params, length)
        state, middle = SequenceState(len(sequence)), len(sequence) // 2
        return (
            Piece(sequence=sequence, stop=middle, state=state),
            Piece(sequence=sequence, start=middle, stop=len(sequence), state=state),
        )

"""One model that takes work: everything that a verb needs of it, and what was decided about it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from cenote.checkpoint.decide import Decision
from cenote.checkpoint.spec import Fact, ModelSpec
from cenote.errors import UnsupportedTaskError
from cenote.outputs import Usage
from cenote.params import InputType, PoolingParams, Task, TaskParams
from cenote.runtime.distinct import distinct
from cenote.runtime.lane import Lane
from cenote.runtime.loop import Loop
from cenote.runtime.request import Answer, Request, Sequence
from cenote.runtime.runner import with_updates
from cenote.text.encoder import TextEncoder
from cenote.text.tokenized import TokenizedText

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """What was read and decided about a loaded model.

    `dimensions` is the width of its dense embedding, `prompts` are the names of the prompts that the checkpoint has.
    """

    name: str
    architecture: str
    tasks: tuple[Task, ...]
    dimensions: int | None
    max_length: int
    prompts: tuple[str, ...]
    dtype: str
    device: str
    num_parameters: int
    decisions: tuple[Decision, ...]
    facts: tuple[Fact, ...]
    unused_weights: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pending(Generic[T]):
    """Work that was queued: a future, and how its answer becomes what the caller asked for."""

    future: Future[Answer]
    assemble: Callable[[Answer], T]

    def result(self) -> T:
        """Wait for the answer."""
        return self.assemble(self.future.result())


@dataclass(frozen=True, kw_only=True)
class Core:
    """One model, ready: everything that a verb needs."""

    spec: ModelSpec
    info: EngineInfo
    encoder: TextEncoder
    lane: Lane
    loop: Loop

    def task_params(self, params: Many[PoolingParams], texts: Many[TokenizedText]) -> list[TaskParams]:
        """Return the checked params of each text: `params` for all of them, with what is known of the text itself."""
        for each in params:
            self.check(each)
        by_task = {each.task: each for each in params if each.task is not None}
        checked = with_updates(by_task, self.lane.runner.pooler)
        for each in params:
            for text in texts:
                each.verify_rows(len(text))
        alike: dict[tuple[InputType | None, int], TaskParams] = {}  # texts share one mapping: there may be very many
        found = []
        for text in texts:
            known = text.input_type, self._num_skipped(text)
            if known not in alike:
                alike[known] = {task: _for_text(each, *known) for task, each in checked.items()}
            found.append(alike[known])
        return found

    def check(self, params: PoolingParams) -> None:
        """Raise `InputError` where this model cannot do what `params` ask."""
        params.verify()
        assert params.task is not None
        if params.task not in self.info.tasks:
            offered = ", ".join(self.info.tasks)
            raise UnsupportedTaskError(
                f"model {self.info.name!r} does not offer the task {params.task!r}; it offers: {offered}", param="task"
            )
        self.lane.runner.pooler.verify_params(params.task, params)

    def submit(self, texts: Many[TokenizedText], params: Many[TaskParams]) -> Future[Answer]:
        """Queue one request of all `texts`. Equal ids with equal params are computed once."""
        sequences, places = distinct([self._sequence(*pair) for pair in zip(texts, params, strict=True)])
        request = Request(sequences=sequences, places=places)
        self.loop.submit(self.lane, request)
        return request.future

    def _sequence(self, text: TokenizedText, params: TaskParams) -> Sequence:
        model, pooler = self.lane.runner.model, self.lane.runner.pooler
        read = self._num_read(text, params)
        return Sequence(
            token_ids=text.token_ids[:read],
            token_type_ids=None if text.token_type_ids is None else text.token_type_ids[:read],
            num_keys=min(text.num_keys, read),
            params=params,
            chunkable=model.is_causal and pooler.supports_chunks(params),
            shares_prefix=model.is_causal and not pooler.needs_all_rows(params),
        )

    def _num_skipped(self, text: TokenizedText) -> int:
        """Return how many leading rows of a text are left out of its embedding."""
        return text.num_prompt_tokens if self.spec.embed is not None and not self.spec.embed.include_prompt else 0

    def _num_read(self, text: TokenizedText, params: TaskParams) -> int:
        """Return how many tokens of a text are read: those before the padding that its tokenizer may have appended."""
        pad = None if self.spec.classify is None else self.spec.classify.pad_token_id
        if pad is None or set(params) != {"classify"}:
            return len(text)
        others = np.flatnonzero(text.token_ids != pad)
        return int(others[-1]) + 1 if len(others) else 1


def usage(texts: Many[TokenizedText], answer: Answer) -> Usage:
    """Return what a request over `texts` cost."""
    return Usage(
        num_tokens=[len(text.token_ids) for text in texts],
        truncated=[text.truncated for text in texts],
        queue_seconds=answer.queue_seconds,
        inference_seconds=answer.inference_seconds,
    )


def _for_text(params: PoolingParams, input_type: InputType | None, num_skipped: int) -> PoolingParams:
    if (params.input_type, params.num_skipped_tokens) == (input_type, num_skipped):
        return params
    return replace(params, input_type=input_type, num_skipped_tokens=num_skipped)

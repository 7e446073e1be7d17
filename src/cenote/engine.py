"""Engine and AsyncEngine: the one door to a model, with the same verbs blocking and awaitable."""

from __future__ import annotations

import asyncio
import functools
import itertools
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np

from cenote import verbs
from cenote.checkpoint.spec import ModelSpec
from cenote.config import EngineOptions, from_keywords
from cenote.core import Core, EngineInfo, Pending
from cenote.errors import EngineClosedError, OptionError
from cenote.opening import open_core
from cenote.parts import PARTS_IN_FLIGHT, Whole, is_large, parts_of
from cenote.runtime.lane import Lane
from cenote.runtime.load import Load
from cenote.runtime.loop import Loop
from cenote.text.content import FEW_CHARACTERS

P = ParamSpec("P")
T = TypeVar("T")

MANY_TEXTS = 64
"""A request of more texts is tokenised apart from those of fewer."""


class _Door:
    """A model and the loop that serves it. A loop that was handed in stays open when the engine closes."""

    _STEP_MS: int | None = None
    """How long a step on a CPU takes unless the options say it; `None` is `CPU_STEP_SECONDS`."""

    def __init__(
        self,
        model: str | Path,
        options: EngineOptions | None = None,
        *,
        loop: Loop | None = None,
        **keywords: Any,
    ) -> None:
        """Open `model`, a folder or a hub id.

        `options`, or the same names as keywords, are those of `cenote.config.EngineOptions`. Raises `CheckpointError`
        where the checkpoint cannot be served right and `OptionError` for an option that cannot be used.
        """
        if options is not None and keywords:
            raise OptionError("give either options or keywords, not both")
        options = options or from_keywords(EngineOptions, keywords)
        if options.step_ms is None:
            options = replace(options, step_ms=self._STEP_MS)
        self._loop, self._owns_loop = loop or Loop(), loop is None
        try:
            core = open_core(str(model), options, self._loop)
        except BaseException:
            if self._owns_loop:
                self._loop.close()
            raise
        self._opened: Core | None = core
        self._info = core.info
        self._last_load = self._loop.load(core.lane)
        self._close = weakref.finalize(self, _close, self._loop, None if self._owns_loop else core.lane)
        self._close.atexit = False  # the loop sees to that

    @property
    def info(self) -> EngineInfo:
        """What was read and decided, with the reasons."""
        return self._info

    @property
    def _core(self) -> Core:
        if self._opened is None:
            raise EngineClosedError("the engine is closed")
        return self._opened

    @property
    def spec(self) -> ModelSpec:
        """What the checkpoint says about itself."""
        return self._core.spec

    @property
    def healthy(self) -> bool:
        """Whether the engine takes and answers requests."""
        return self._close.alive and self._loop.healthy

    @property
    def load(self) -> Load:
        """What waits for the model, and what it has done; of a closed engine, what it had done."""
        if self._opened is not None:
            self._last_load = self._loop.load(self._opened.lane)
        return self._last_load

    def close(self) -> None:
        """Finish what is queued, or fail it where the loop is not ours, refuse what comes, and free the memory.

        Closing twice is harmless.
        """
        removed = self._close()
        if removed is not None:
            removed.result()
        if self._owns_loop:
            self._loop.close()
        _ = self.load
        self._opened = None


def _close(loop: Loop, lane: Lane | None) -> Future[None] | None:
    """Stop the loop, or take the model off it. Nothing is waited for: the collector may run this on any thread, also
    on one that the loop waits for.
    """
    if lane is None:
        loop.stop()
        return None
    try:
        return loop.remove(lane)
    except EngineClosedError:  # the loop was closed before, or is stuck or dead
        return None


def _blocking(verb: Callable[Concatenate[Core, P], Pending[T]]) -> Callable[Concatenate[Engine, P], T]:
    def method(self: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(verb, self._core, *args, **kwargs)
        if not is_large(call):
            return call().result()
        whole, flying = Whole[T](call), deque[Pending[T]]()
        try:
            for start in parts_of(call):
                if len(flying) == PARTS_IN_FLIGHT:
                    whole.add(flying.popleft().result())
                flying.append(start())
            while flying:
                whole.add(flying.popleft().result())
        finally:
            for pending in flying:
                pending.future.cancel()
        return whole.result()

    functools.update_wrapper(method, verb)
    return method


def _awaitable(verb: Callable[Concatenate[Core, P], Pending[T]]) -> Callable[Concatenate[AsyncEngine, P], Awaitable[T]]:
    async def method(self: AsyncEngine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(verb, self._core, *args, **kwargs)
        if not is_large(call):
            return await self._answer(call)
        whole, flying = Whole[T](call), deque[asyncio.Task[T]]()
        try:
            for start in parts_of(call):
                if len(flying) == PARTS_IN_FLIGHT:
                    whole.add(await flying.popleft())
                flying.append(asyncio.create_task(self._answer(start)))
            while flying:
                whole.add(await flying.popleft())
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
        return whole.result()

    functools.update_wrapper(method, verb)
    return method


def _at_once(verb: Callable[Concatenate[Core, P], T]) -> Callable[Concatenate[Engine, P], T]:
    def method(self: Engine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._core, *args, **kwargs)

    functools.update_wrapper(method, verb)
    return method


def _tokenizing(
    verb: Callable[Concatenate[Core, P], T],
) -> Callable[Concatenate[AsyncEngine, P], Awaitable[T]]:
    async def method(self: AsyncEngine, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(verb, self._core, *args, **kwargs)
        threads = self._threads_for(call)
        return call() if threads is None else await asyncio.wrap_future(threads.submit(call))

    functools.update_wrapper(method, verb)
    return method


async def _submitted(threads: ThreadPoolExecutor, call: Callable[[], Pending[T]]) -> Pending[T]:
    """Start `call` on one of `threads`. Whoever leaves while it is tokenised takes it along."""
    submitted = threads.submit(call)
    try:
        return await asyncio.shield(asyncio.wrap_future(submitted))
    except asyncio.CancelledError:
        if not submitted.cancel():
            submitted.add_done_callback(_withdraw)
        raise


def _withdraw(submitted: Future[Pending[Any]]) -> None:
    """Take a request out of the queue whose caller left while it was tokenised."""
    if not submitted.cancelled() and submitted.exception() is None:
        submitted.result().future.cancel()


class Engine(_Door):
    """A model behind blocking verbs; safe to call from several threads.

    >>> with Engine("sentence-transformers/all-MiniLM-L6-v2") as engine:
    ...     engine.embed(["a text", "another"]).shape
    (2, 384)
    """

    _STEP_MS = 400

    embed = _blocking(verbs.embed)
    embed_all = _blocking(verbs.embed_all)
    embed_chunks = _blocking(verbs.embed_chunks)
    encode = _blocking(verbs.encode)
    classify = _blocking(verbs.classify)
    zero_shot = _blocking(verbs.zero_shot)
    token_classify = _blocking(verbs.token_classify)
    reward = _blocking(verbs.reward)
    rerank = _blocking(verbs.rerank)
    score = _blocking(verbs.score)
    pool = _blocking(verbs.pool)

    tokenize = _at_once(verbs.tokenize)
    tokens = _at_once(verbs.tokens)
    chat_tokens = _at_once(verbs.chat_tokens)
    detokenize = _at_once(verbs.detokenize)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncEngine(_Door):
    """The verbs of `Engine`, awaitable. Cancelling one takes its request out of the queue.

    Tokenising runs on threads of its own, so that the event loop stays free: two for requests of many texts, and two
    for the others, which do not wait behind those. A query is tokenised at once, which takes less than the way to a
    thread and back.
    """

    def __init__(
        self, model: str | Path, options: EngineOptions | None = None, *, loop: Loop | None = None, **keywords: Any
    ) -> None:
        super().__init__(model, options, loop=loop, **keywords)
        self._few = ThreadPoolExecutor(max_workers=2, thread_name_prefix="cenote-text")
        self._many = ThreadPoolExecutor(max_workers=2, thread_name_prefix="cenote-texts")

    embed = _awaitable(verbs.embed)
    embed_all = _awaitable(verbs.embed_all)
    embed_chunks = _awaitable(verbs.embed_chunks)
    encode = _awaitable(verbs.encode)
    classify = _awaitable(verbs.classify)
    zero_shot = _awaitable(verbs.zero_shot)
    token_classify = _awaitable(verbs.token_classify)
    reward = _awaitable(verbs.reward)
    rerank = _awaitable(verbs.rerank)
    score = _awaitable(verbs.score)
    pool = _awaitable(verbs.pool)

    tokenize = _tokenizing(verbs.tokenize)
    tokens = _tokenizing(verbs.tokens)
    chat_tokens = _tokenizing(verbs.chat_tokens)
    detokenize = _tokenizing(verbs.detokenize)

    async def _answer(self, call: functools.partial[Pending[T]]) -> T:
        """Start `call`, and wait for its answer; whoever cancels that takes it out of the queue."""
        threads = self._threads_for(call)
        pending = call() if threads is None else await _submitted(threads, call)
        return pending.assemble(await asyncio.wrap_future(pending.future))

    def _threads_for(self, call: functools.partial[Any]) -> ThreadPoolExecutor | None:
        """Return the threads to tokenise for `call` on; None where all that it has are a few short strings."""
        if not self._close.alive:
            raise EngineClosedError("the engine is closed")
        values = (*call.args[1:], *call.keywords.values())
        lists = [value for value in values if isinstance(value, list | tuple)]
        if any(isinstance(value, np.ndarray) for value in values) or any(len(each) > MANY_TEXTS for each in lists):
            return self._many
        texts = [*itertools.chain(*lists), *(value for value in values if isinstance(value, str))]
        if all(isinstance(text, str) for text in texts) and sum(map(len, texts)) <= FEW_CHARACTERS:
            return None
        return self._few

    def close(self) -> None:
        super().close()
        self._few.shutdown(wait=False)
        self._many.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(super().close)
        self._few.shutdown(wait=False)
        self._many.shutdown(wait=False)

"""A call of very many texts, in parts: one is tokenised while the one before it is computed.

So a call holds its answer and a few parts, however many texts it has.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from cenote import verbs
from cenote.core import Pending
from cenote.errors import InputError
from cenote.outputs import Answers, Encoded, Usage, UsageArray

T = TypeVar("T")

PART_TEXTS = 2048
PARTS_IN_FLIGHT = 2
PER_TEXT: frozenset[Callable[..., Any]] = frozenset(
    {
        verbs.embed,
        verbs.embed_all,
        verbs.encode,
        verbs.classify,
        verbs.zero_shot,
        verbs.token_classify,
        verbs.reward,
    }
)
"""The verbs that answer each of their `texts` by itself."""


def is_large(call: partial[Any]) -> bool:
    """Return whether a verb, bound to its model and arguments, is run in parts.

    One long list of token ids, and one long conversation, are one text.
    """
    texts = _texts(call)
    if call.func not in PER_TEXT or not isinstance(texts, list | tuple | np.ndarray) or len(texts) <= PART_TEXTS:
        return False
    return isinstance(texts[0], str | list | tuple | np.ndarray)


def parts_of(call: partial[Pending[T]]) -> Iterator[partial[Pending[T]]]:
    """Return what starts each part of a large call, in order. An `InputError` names the place in the whole of it."""
    return (partial(_start, call, _texts(call), first) for first in range(0, len(_texts(call)), PART_TEXTS))


def _texts(call: partial[Any]) -> Any:
    """Return the first argument of a verb after the model."""
    return call.args[1] if len(call.args) > 1 else call.keywords.get("texts")


def _start(call: partial[Pending[T]], texts: Any, first: int) -> Pending[T]:
    param = call.keywords.get("param", "texts")
    try:
        return _with_texts(call, texts[first : first + PART_TEXTS])
    except InputError as error:
        if error.param != param or error.index is None:
            raise
        index = first + error.index
        raise error.named(f"{param}[{index}]", index) from None


def _with_texts(call: partial[Pending[T]], texts: Any) -> Pending[T]:
    if len(call.args) == 1:
        return call.func(*call.args, **call.keywords | {"texts": texts})
    core, _, *others = call.args
    return call.func(core, texts, *others, **call.keywords)


class Whole(Generic[T]):
    """The answer of a large call, put together from those of its parts as they come."""

    def __init__(self, call: partial[Pending[T]]) -> None:
        self._columns: dict[str, _Column] = defaultdict(partial(_Column, len(_texts(call))))
        self._usages: list[Usage] = []
        self._last: Any = None
        self._started = time.monotonic()

    def add(self, part: T) -> None:
        """Put the answer of the next part behind those before it."""
        self._last = part
        self._usages.append(self._last.usage)
        if isinstance(part, Encoded):
            for name in ("dense", "sparse", "multi_vector"):
                self._columns[name].add(getattr(part, name))
        else:
            self._columns["answers"].add(part)
        _return_freed_memory()

    def result(self) -> T:
        """Return the whole, once every part was added."""
        result: Any
        values = {name: column.values for name, column in self._columns.items()}
        if isinstance(self._last, Encoded):
            result = Encoded(**values, usage=self._usage())
        elif isinstance(self._last, UsageArray):
            result = type(self._last).wrap(values["answers"], self._usage())
        else:
            result = Answers(values["answers"], self._usage())
        answer: T = result
        return answer

    def _usage(self) -> Usage:
        """Return what all parts cost; the first one's wait is the call's, all that comes after is inference."""
        waited = self._usages[0].queue_seconds
        return Usage(
            num_tokens=[count for usage in self._usages for count in usage.num_tokens],
            truncated=[truncated for usage in self._usages for truncated in usage.truncated],
            queue_seconds=waited,
            inference_seconds=time.monotonic() - self._started - waited,
        )


def _return_freed_memory() -> None:
    """Give the system back what was freed: glibc keeps it for each thread, and takes new memory beside it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class _Column:
    """One answer of every text: an array that has room for all of them, or a list that grows."""

    def __init__(self, num_texts: int) -> None:
        self._num_texts = num_texts
        self._num_added = 0
        self.values: Any = None

    def add(self, values: Any) -> None:
        if isinstance(values, np.ndarray):
            if self.values is None:
                self.values = np.empty((self._num_texts, *values.shape[1:]), values.dtype)
            self.values[self._num_added : self._num_added + len(values)] = values
            self._num_added += len(values)
        elif values is not None:
            self.values = self.values or []
            self.values.extend(values)

"""What the engine answers. Arrays are numpy; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseVector:
    """A vector of vocabulary size by its non-zero terms: `indices` rising token ids, `values` their weights."""

    indices: npt.NDArray[np.int64]
    values: Float32Array
    tokens: list[str] | None = None
    """the vocabulary's string of each index, where they were asked for"""

    def __len__(self) -> int:
        return len(self.indices)

    def to_dict(self) -> dict[int, float]:
        """Return `{token id: weight}`."""
        return dict(zip(self.indices.tolist(), self.values.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What one request cost and what happened to its texts; each list has one entry for each text."""

    num_tokens: list[int]
    """Tokens that the model read, special ones included."""
    truncated: list[bool]
    """Whether the text was cut to the limit."""
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0

    @property
    def total_tokens(self) -> int:
        return sum(self.num_tokens)


class UsageArray(np.ndarray):
    """A float32 array that also carries `usage`; it behaves as the plain array everywhere else."""

    usage: Usage | None = None
    """Set on the array that the engine returned, not on slices of it."""

    @classmethod
    def wrap(cls, values: Float32Array, usage: Usage) -> Self:
        """Return a view of `values` with `usage` on it."""
        view = values.view(cls)
        view.usage = usage
        return view

    @property
    def num_tokens(self) -> list[int]:
        return [] if self.usage is None else self.usage.num_tokens

    @property
    def truncated(self) -> list[bool]:
        return [] if self.usage is None else self.usage.truncated


class Embeddings(UsageArray):
    """Dense vectors `(n, D)`."""


class Scores(UsageArray):
    """One number for each text or pair `(n,)`."""


class Answers(list[T]):
    """A list with one entry for each text, that also carries `usage`."""

    def __init__(self, entries: Iterable[T], usage: Usage) -> None:
        super().__init__(entries)
        self.usage = usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification:
    """The labels of one text: the best one, and the score of each."""

    label: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A piece of a text that has a label: `text[start:end]`, in characters of the caller's own string."""

    label: str
    score: float
    start: int
    end: int
    text: str


RerankKind = Literal["cross_encoder", "llm_reranker", "listwise", "late_interaction", "cosine"]
"""How a document was scored: read together with the query by an encoder or by a language model, together with the query
and the other documents, or apart from it, token by token or as one vector."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """One document of a ranking.

    `index` is its place in the caller's list, `document` the caller's own object, `None` where documents were not asked
    for. `truncated` says whether the model read only a part of it, or of its query.
    """

    index: int
    score: float
    document: str | Mapping[str, Any] | None
    truncated: bool


class Ranking(Answers[Ranked]):
    """Documents, the best one first, with the `kind` of their scores.

    `usage` has one entry for each sequence that the model read: pairs, or queries and documents, or blocks of them.
    """

    def __init__(self, entries: Iterable[Ranked], usage: Usage, kind: RerankKind) -> None:
        super().__init__(entries, usage)
        self.kind = kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunks:
    """The pieces of one text, embedded in its context (late chunking).

    `vectors` `(k, D)`; `spans` are their characters in the text, from and to; `contexts` says in which context each was
    read, 0 for all of them where the text fits the model's limit.
    """

    vectors: Float32Array
    spans: list[tuple[int, int]]
    contexts: list[int]

    def __len__(self) -> int:
        return len(self.vectors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Several outputs of one pass. What was not asked for is `None`."""

    dense: Float32Array | None
    """`(n, D)`"""
    sparse: list[SparseVector] | None
    multi_vector: list[npt.NDArray[np.floating]] | None
    """one `(rows, D)` for each text"""
    usage: Usage

    @property
    def num_tokens(self) -> list[int]:
        return self.usage.num_tokens

    @property
    def truncated(self) -> list[bool]:
        return self.usage.truncated

    def __iter__(self) -> Iterator[object]:
        raise TypeError("Encoded has no order: use .dense, .sparse and .multi_vector")

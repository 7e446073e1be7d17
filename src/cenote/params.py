"""What a request may ask of the pooling step. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, get_args

from cenote.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Task = Literal["embed", "embed_sparse", "token_embed", "classify", "token_classify"]
TASKS: tuple[Task, ...] = get_args(Task)

Output = Literal["dense", "sparse", "multi_vector"]
"""The names of `Engine.encode`'s outputs."""
OUTPUT_TASKS: dict[Output, Task] = {"dense": "embed", "sparse": "embed_sparse", "multi_vector": "token_embed"}

OutputDtype = Literal["float32", "float16"]
InputType = Literal["query", "document"]

_INTERNAL_FIELDS = frozenset({"task", "requires_token_ids", "input_type", "num_skipped_tokens", "query_vectors"})
_TASK_FIELDS: dict[Task, frozenset[str]] = {
    "embed": frozenset({"dimensions", "use_activation", "segments"}),
    "embed_sparse": frozenset(),
    "token_embed": frozenset({"dimensions", "use_activation", "output_dtype"}),
    "classify": frozenset({"use_activation"}),
    "token_classify": frozenset({"use_activation", "step_tag_id", "returned_token_ids"}),
}
"""The caller's fields that each task understands; anything else is refused rather than ignored."""


@dataclass(frozen=True, eq=False)
class QueryVectors:
    """The token embeddings of one query, fp32 `[n, D]`; all documents of a query share the same object."""

    rows_np: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PoolingParams:
    """How one task pools one sequence. `None` means what the checkpoint asks for.

    `task` must be set before the pooling step. `dimensions` cuts an embedding to its first values (matryoshka) before
    it is normalised. `use_activation` switches the head's last step: L2 normalisation for embeddings, sigmoid, softmax
    or the like for labels. `output_dtype` is what token embeddings leave the device in. `step_tag_id` and
    `returned_token_ids` choose rows and columns of a process reward model. `segments` are pieces of the sequence, rows
    `(start, stop)` with special tokens counted, that are to be embedded one by one (late chunking).
    The last four are set by the engine, not by callers: `requires_token_ids` by `PoolingParamsUpdate.apply`,
    `input_type` from the request, `num_skipped_tokens` where the checkpoint leaves the prompt out of the pooling,
    `query_vectors` where token embeddings are to leave the device as one score against those of a query.
    """

    task: Task | None = None
    use_activation: bool | None = None
    dimensions: int | None = None
    step_tag_id: int | None = None
    returned_token_ids: tuple[int, ...] | None = None
    segments: tuple[tuple[int, int], ...] | None = None
    output_dtype: OutputDtype | None = None
    requires_token_ids: bool = False
    input_type: InputType | None = None
    num_skipped_tokens: int = 0
    query_vectors: QueryVectors | None = None

    def verify(self) -> None:
        """Raise `InputError` where a field is set that the task does not support, or no task is set."""
        if self.task is None:
            raise InputError("PoolingParams.task must be set before pooling", param="task")
        if self.task not in TASKS:
            raise InputError(f"unknown task {self.task!r}; known tasks: {', '.join(TASKS)}", param="task")
        supported = _TASK_FIELDS[self.task]
        for name in _CALLERS_FIELDS:
            if getattr(self, name) is not None and name not in supported:
                names = ", ".join(sorted(supported)) or "none"
                raise InputError(f"the task {self.task!r} does not support {name!r}; it supports: {names}", param=name)
        self._verify_segments()

    def _verify_segments(self) -> None:
        for segment in self.segments or ():
            if not (len(segment) == 2 and all(type(row) is int for row in segment) and 0 <= segment[0] < segment[1]):
                raise InputError(
                    f"segments are pairs of rows (start, stop), start below stop, not {segment!r}", param="segments"
                )
        if self.segments == ():
            raise InputError("segments is empty: leave it out for the vector of the whole text", param="segments")

    def verify_rows(self, num_rows: int) -> None:
        """Raise `InputError` where a sequence of `num_rows` has not the rows that are asked for."""
        last = max(stop for _, stop in self.segments) if self.segments else 0
        if last > num_rows:
            raise InputError(f"segments go up to row {last}, but the text has {num_rows} tokens", param="segments")


_CALLERS_FIELDS = tuple(field.name for field in fields(PoolingParams) if field.name not in _INTERNAL_FIELDS)


@dataclass(frozen=True)
class PoolingParamsUpdate:
    """What a pooler needs of a sequence's params. Updates of several poolers merge with `|`."""

    requires_token_ids: bool = False

    def __or__(self, other: PoolingParamsUpdate) -> PoolingParamsUpdate:
        return PoolingParamsUpdate(requires_token_ids=self.requires_token_ids or other.requires_token_ids)

    def apply(self, params: PoolingParams) -> PoolingParams:
        """Return `params` with the needs of this update switched on."""
        return replace(params, requires_token_ids=True) if self.requires_token_ids else params


TaskParams = Mapping[Task, PoolingParams]
"""The params of one sequence, one entry for each task that it was sent for."""

"""What is asked of a scorer, and what it answers: the same for every kind of model."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.errors import InputError
from cenote.outputs import Float32Array, RerankKind, Usage
from cenote.text.options import TruncationSide


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """Queries and documents to be scored: one query for all documents, or one for each.

    `max_query_tokens` and `max_document_tokens` cut each text on its own first; what is then still over the model's
    limit, which `max_tokens` lowers, is cut at `truncation_side` or, without `truncate`, refused. That limit is of what
    the model reads as one sequence: the pair, or each text where they are read apart. `instruction` is for models whose
    prompt has a place for one. The `param`s are the names that errors give to the texts.
    """

    queries: list[str]
    documents: list[str]
    instruction: str | None = None
    max_query_tokens: int | None = None
    max_document_tokens: int | None = None
    max_tokens: int | None = None
    truncate: bool = True
    truncation_side: TruncationSide | None = None
    query_param: str = "query"
    document_param: str = "documents"

    @property
    def query_texts(self) -> str | list[str]:
        """The queries as the text layer takes them: a single one has no position that errors could name."""
        return self.queries[0] if len(self.queries) == 1 else self.queries

    def query_of(self, document: int) -> int:
        """Return the position of the query of a document."""
        return 0 if len(self.queries) == 1 else document

    def refuse_instruction(self, kind: RerankKind) -> None:
        """Raise `InputError` where there is an instruction, for kinds that read none."""
        if self.instruction is not None:
            raise InputError(
                f"this model scores by {kind} and reads no instruction; put it into the query", param="instruction"
            )


def check_positive(param: str, value: object) -> None:
    """Raise `InputError` about the caller's argument `param` unless it is absent or an integer of at least 1."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"{param} must be an integer of at least 1, not {value!r}", param=param)


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """The score of each document `(n,)` in the caller's order, before (`raw`) and after the checkpoint's activation.

    `truncated` has an entry for each document, `usage` one for each sequence that the model read.
    """

    raw: Float32Array
    scores: Float32Array
    truncated: list[bool]
    usage: Usage
    kind: RerankKind

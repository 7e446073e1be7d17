"""Pairs of a query and a document in the prompt of a language model. Only the document is ever shortened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer

from cenote.errors import InputError, TooLongError
from cenote.text.content import Content, Wanted, first_tokens, read_contents
from cenote.text.control_tokens import neutral
from cenote.text.inputs import Place, read_strings
from cenote.text.locality import Locality
from cenote.text.options import PairOptions
from cenote.text.pair_prompt import Piece, Slot, SlotName
from cenote.text.pairs import partners
from cenote.text.tokenized import IntArray, TokenizedText

_FILLERS = ("0", "1 2 3 4")
"""Two documents that have no token in common: what the prompts of both end with is not theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedPairEncoder:
    """Writes pairs into a prompt. `control` matches the control tokens, which are no such in the caller's texts."""

    backend: Tokenizer
    locality: Locality
    control: re.Pattern[str]
    has_types: bool
    max_length: int

    def encode(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        pieces: tuple[Piece, ...],
        options: PairOptions,
    ) -> list[TokenizedText]:
        """Return one sequence for each pair: 1:1, 1:N or N:N.

        A prompt that is too long loses tokens at the end of its document. Raise `TooLongError` where the query leaves a
        document no room, or where `truncate` is off.
        """
        if options.truncation_side == "left":
            raise InputError("a document in a prompt is cut at its end only", param="truncation_side")
        query_texts, query_places = read_strings(queries, param=options.query_param)
        document_texts, document_places = read_strings(documents, param=options.document_param)
        chosen = partners(len(query_texts), len(document_texts), options)
        cut_queries = self._cut(query_texts, options.max_query_tokens)
        cut_documents = self._cut(document_texts, options.max_document_tokens)
        around = [Surroundings.of(self.backend, pieces, query) for query, _ in cut_queries]
        contents = self._contents([(around[i], cut_documents[j][0]) for i, j in chosen], options)
        limit = min(self.max_length, options.max_length or self.max_length)
        return [
            self._sequence(
                _Prompt(around[i], content, limit, query_places[i], document_places[j]),
                options,
                is_cut=cut_queries[i][1] or cut_documents[j][1],
            )
            for (i, j), content in zip(chosen, contents, strict=True)
        ]

    def _cut(self, texts: list[str], limit: int | None) -> list[tuple[str, bool]]:
        neutralised = [neutral(text, self.control) for text in texts]
        if limit is None:
            return [(text, False) for text in neutralised]
        return first_tokens(self.backend, self.locality, neutralised, limit)

    def _contents(self, pairs: list[tuple[Surroundings, str]], options: PairOptions) -> list[Content]:
        """Return the tokens of the piece that holds the document: up to its end, or whole where that may fit."""
        wanted = Wanted(limit=self.max_length, side="right", exact=not options.truncate)
        heads = [around.head + around.written(document) for around, document in pairs]
        contents = read_contents(self.backend, self.locality, heads, wanted)
        fitting = [i for i, (around, _) in enumerate(pairs) if around.tail and _is_whole(contents[i])]
        wholes = [heads[i] + pairs[i][0].tail for i in fitting]
        for i, whole in zip(fitting, read_contents(self.backend, self.locality, wholes, wanted), strict=True):
            contents[i] = replace(whole, offsets=None)
        return contents

    def _sequence(self, prompt: _Prompt, options: PairOptions, *, is_cut: bool) -> TokenizedText:
        ids, truncated = prompt.ids(options)
        return TokenizedText(
            token_ids=ids,
            token_type_ids=np.zeros(len(ids), np.int64) if self.has_types else None,
            num_keys=len(ids),
            truncated=truncated or is_cut,
        )


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What stands around the document of a prompt: ids `before` and `after` its piece, text `head` and `tail` in it."""

    backend: Tokenizer
    before: IntArray
    head: str
    slot: Slot
    tail: str
    after: IntArray

    @classmethod
    def of(cls, backend: Tokenizer, pieces: tuple[Piece, ...], query: str) -> Surroundings:
        """Write `query` into the pieces."""
        at = next(i for i, piece in enumerate(pieces) if "document" in piece.slots)
        head, slot, tail = pieces[at].around_document()
        values: dict[SlotName, str] = {"query": query}
        written = [[_ids(backend, piece.fill(values)) for piece in some] for some in (pieces[:at], pieces[at + 1 :])]
        before, after = (np.concatenate([np.zeros(0, np.int64), *some]) for some in written)
        return cls(
            backend=backend,
            before=before,
            head=head.fill(values),
            slot=slot,
            tail=tail.fill(values),
            after=after,
        )

    def written(self, document: str) -> str:
        """Return the document as the prompt shows it."""
        return document.strip() if self.slot.strip else document

    @cached_property
    def num_head_tokens(self) -> int:
        return len(_ids(self.backend, self.head))

    @cached_property
    def tail_ids(self) -> IntArray:
        """The tokens behind every document: what the prompts of two unlike ones end with."""
        first, second = (_ids(self.backend, self.head + filler + self.tail) for filler in _FILLERS)
        shorter = min(len(first), len(second))
        differ = np.flatnonzero(first[::-1][:shorter] != second[::-1][:shorter])
        length = int(differ[0]) if len(differ) else shorter
        return first[len(first) - length :] if self.tail else first[:0]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """One pair: its surroundings, the tokens of the piece with the document, and where both texts come from."""

    around: Surroundings
    content: Content
    limit: int
    query: Place
    document: Place

    def ids(self, options: PairOptions) -> tuple[IntArray, bool]:
        """Return the ids of the whole prompt, and whether the document was shortened."""
        around, content = self.around, self.content
        room = self.limit - len(around.before) - len(around.after)
        truncated = not _is_whole(content) or content.length > room
        kept = content.ids
        if truncated:
            self._check_may_cut(room, options)
            kept = np.concatenate([kept[: room - len(around.tail_ids)], around.tail_ids])
        return np.concatenate([around.before, kept, around.after]), truncated

    def _check_may_cut(self, room: int, options: PairOptions) -> None:
        length = len(self.around.before) + self.content.length + len(self.around.after)
        if not options.truncate:
            raise self.document.too_long(length, self.limit, is_exact=self.content.is_exact)
        if room - len(self.around.tail_ids) <= self.around.num_head_tokens:
            raise TooLongError(
                f"{self.query} and the prompt around it leave a document nothing of the limit of {self.limit} tokens: "
                "shorten the query, or cut it with max_tokens_per_query",
                param=self.query.param,
                index=self.query.index,
            )


def _is_whole(content: Content) -> bool:
    return content.is_exact and content.length == len(content.ids)


def _ids(backend: Tokenizer, text: str) -> IntArray:
    return np.array(backend.encode(text, add_special_tokens=False).ids, np.int64)

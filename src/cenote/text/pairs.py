"""Pairs of a query and a document as one sequence, for models that read both at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from cenote.errors import InputError, TooLongError
from cenote.text.content import Content, Wanted, read_contents
from cenote.text.frame import Frame
from cenote.text.inputs import Place, read_strings
from cenote.text.locality import Locality
from cenote.text.options import PairOptions, TruncationSide
from cenote.text.tokenized import TokenizedText
from cenote.text.truncate import cut, pair_lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEncoder:
    """Encodes pairs exactly as the tokenizer does, but each text once, however many pairs it is in."""

    backend: Tokenizer
    locality: Locality
    frame: Frame
    has_types: bool
    max_length: int
    side: TruncationSide

    def encode(
        self, queries: str | Sequence[str], documents: str | Sequence[str], prompt: str, options: PairOptions
    ) -> list[TokenizedText]:
        """Return one sequence for each pair: 1:1, 1:N or N:N. Raise `InputError` that names the text at fault."""
        query_texts, query_places = read_strings(queries, param=options.query_param)
        document_texts, document_places = read_strings(documents, param=options.document_param)
        chosen = partners(len(query_texts), len(document_texts), options)
        room = self._room(options)
        firsts = self._contents([prompt + text for text in query_texts], room, options)
        seconds = self._contents(document_texts, room, options)
        return [
            self._join(firsts[i], seconds[j], room, _Pair(query_places[i], document_places[j], options))
            for i, j in chosen
        ]

    def _room(self, options: PairOptions) -> int:
        limit = min(self.max_length, options.max_length or self.max_length)
        if limit < self.frame.size:
            raise InputError(
                f"max_length {limit} leaves no room: a pair has {self.frame.size} special tokens", param="max_length"
            )
        return limit - self.frame.size

    def _contents(self, texts: list[str], room: int, options: PairOptions) -> list[Content]:
        wanted = Wanted(limit=room, side=options.truncation_side or self.side, exact=not options.truncate)
        return read_contents(self.backend, self.locality, texts, wanted)

    def _join(self, query: Content, document: Content, room: int, pair: _Pair) -> TokenizedText:
        options, side = pair.options, pair.options.truncation_side or self.side
        wanted = (_capped(query, options.max_query_tokens), _capped(document, options.max_document_tokens))
        if sum(wanted) > room:
            pair.check_fits(wanted, room + self.frame.size, self.frame)
        kept = pair_lengths(*wanted, room, options.truncation)
        first, second = cut(query.ids, kept[0], side), cut(document.ids, kept[1], side)
        ids = self.frame.join(first, second)
        if not len(ids):
            raise pair.document.error("and its query have no tokens")
        return TokenizedText(
            token_ids=ids,
            token_type_ids=self.frame.token_types(len(first), len(second)) if self.has_types else None,
            num_keys=len(ids),
            truncated=kept != (query.length, document.length),
        )


@dataclass(frozen=True, slots=True)
class _Pair:
    """Where the two texts of a pair come from, and what was asked for them."""

    query: Place
    document: Place
    options: PairOptions

    def check_fits(self, lengths: tuple[int, int], limit: int, frame: Frame) -> None:
        """Raise `TooLongError` where a pair that is over the limit may not, or cannot, be cut as asked."""
        if not self.options.truncate:
            raise TooLongError(
                f"{self.document} and its query have {sum(lengths) + frame.size} tokens together and the limit is"
                f" {limit}: shorten it or allow truncation",
                param=self.document.param,
                index=self.document.index,
            )
        if self.options.truncation == "only_second" and lengths[0] + frame.size >= limit:
            raise TooLongError(
                f"{self.query} has {lengths[0]} tokens, which leaves nothing of the limit of {limit} for a document:"
                " shorten it",
                param=self.query.param,
                index=self.query.index,
            )


def _capped(content: Content, most: int | None) -> int:
    return content.length if most is None else min(content.length, most)


def partners(num_queries: int, num_documents: int, options: PairOptions) -> list[tuple[int, int]]:
    """Return the positions of query and document of each pair. Raise `InputError` where it is not 1:1, 1:N or N:N."""
    if num_queries == 1:
        return [(0, j) for j in range(num_documents)]
    if num_queries == num_documents:
        return [(i, i) for i in range(num_queries)]
    raise InputError(
        f"{num_queries} texts in {options.query_param} and {num_documents} in {options.document_param}: lengths must be"
        " 1:1, 1:N or N:N",
        param=options.document_param,
    )

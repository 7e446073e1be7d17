"""The prompts of a listwise reranker (jina-reranker-v3): many documents and the query in one text.

Source of the prompt and the bounds: the model's own code. Every document ends with a mark, and so does the query at its
second place; what the model gives are the rows of the marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from cenote.checkpoint.spec import ListwiseSpec
from cenote.errors import CheckpointError, InputError, TooLongError
from cenote.text.content import first_tokens
from cenote.text.control_tokens import control_pattern, neutral
from cenote.text.locality import Locality
from cenote.text.options import PairOptions
from cenote.text.tokenized import IntArray, TokenizedText
from cenote.text.unicode import scalar_text

_SYSTEM = (
    "<|im_start|>system\nYou are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends on how well it "
    "answers the question. If not, try to analyze the intent of the query and assess how well each passage satisfies "
    "the intent. If an instruction is provided, you should follow the instruction when determining the ranking."
    "<|im_end|>\n<|im_start|>user\n"
)
_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListwiseBlock:
    """One prompt, and which of the documents it holds, in their order."""

    sequence: TokenizedText
    documents: range


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all blocks of a request have in common: the query, the instruction, and the two marks."""

    query: str
    instruction: str | None
    document_mark: str
    query_mark: str

    def prompt(self, documents: Sequence[str]) -> str:
        task = "" if not self.instruction else f"<instruct>\n{self.instruction}\n</instruct>\n"
        passages = "".join(
            f'<passage id="{i}">\n{document}{self.document_mark}\n</passage>\n' for i, document in enumerate(documents)
        )
        return (
            f"{_SYSTEM}I will provide you with {len(documents)} passages, each indicated by a numerical identifier. "
            f"Rank the passages based on their relevance to query: {self.query}\n{task}{passages}"
            f"<query>\n{self.query}{self.query_mark}\n</query>{_END}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListwiseEncoder:
    """Writes a query and its documents into as few prompts as hold them."""

    backend: Tokenizer
    locality: Locality
    spec: ListwiseSpec
    max_length: int

    def encode(
        self, query: str, documents: Sequence[str], options: PairOptions
    ) -> tuple[list[ListwiseBlock], list[bool]]:
        """Return the blocks in the order of `documents`, and for each document whether it, or the query, was cut.

        A block holds at most `max_documents` and as many as fit the model's limit; a document that does not fit alone
        is cut. Raise `TooLongError` where the query leaves a document no room.
        """
        if options.truncation_side == "left":
            raise InputError("a document in a prompt is cut at its end only", param="truncation_side")
        most = min(self.spec.max_query_length, options.max_query_tokens or self.spec.max_query_length)
        ((asked_query, query_is_cut),) = self._first_tokens(self._harmless([query]), most)
        instruction = None if options.instruction is None else self._harmless([options.instruction])[0]
        asked = _Asked(
            asked_query, instruction, self._mark(self.spec.document_token_id), self._mark(self.spec.query_token_id)
        )
        room = self.max_length - len(self._ids(asked.prompt([""])))
        if room < 1:
            raise TooLongError(
                f"{options.query_param} and the prompt around it leave a document nothing of the limit of "
                f"{self.max_length} tokens: shorten the query, or cut it with max_tokens_per_query",
                param=options.query_param,
            )
        capped = self._first_tokens(self._harmless(documents), options.max_document_tokens)
        cut = self._first_tokens([text for text, _ in capped], min(self.spec.max_document_length, room))
        if room <= self.spec.max_document_length:
            cut = [self._alone(asked, *document) for document in cut]
        if not options.truncate:
            self._refuse_cuts([is_cut for _, is_cut in cut], options)
        blocks = self._blocks(asked, [text for text, _ in cut], query_is_cut=query_is_cut)
        return blocks, [
            query_is_cut or is_cut or was_cut for (_, was_cut), (_, is_cut) in zip(capped, cut, strict=True)
        ]

    def _refuse_cuts(self, is_cut: list[bool], options: PairOptions) -> None:
        for i, too_long in enumerate(is_cut):
            if too_long:
                raise TooLongError(
                    f"{options.document_param}[{i}] does not fit into a prompt beside the query, of which a document "
                    f"may have {self.spec.max_document_length} tokens and all {self.max_length}: shorten it or allow "
                    "truncation",
                    param=options.document_param,
                    index=i,
                )

    def _blocks(self, asked: _Asked, documents: list[str], *, query_is_cut: bool) -> list[ListwiseBlock]:
        blocks: list[ListwiseBlock] = []
        start = 0
        while start < len(documents):
            stop, ids = self._longest(asked, documents, start)
            sequence = TokenizedText(token_ids=ids, token_type_ids=None, num_keys=len(ids), truncated=query_is_cut)
            blocks.append(ListwiseBlock(sequence=sequence, documents=range(start, stop)))
            start = stop
        return blocks

    def _longest(self, asked: _Asked, documents: list[str], start: int) -> tuple[int, IntArray]:
        """Return the end and the ids of the longest block from `start` on that fits, of one document at least."""
        shortest, longest = start + 1, min(len(documents), start + self.spec.max_documents)
        ids = self._ids(asked.prompt(documents[start:longest]))
        if len(ids) <= self.max_length:
            return longest, ids
        longest -= 1
        while shortest < longest:
            middle = (shortest + longest + 1) // 2
            if len(self._ids(asked.prompt(documents[start:middle]))) <= self.max_length:
                shortest = middle
            else:
                longest = middle - 1
        return shortest, self._ids(asked.prompt(documents[start:shortest]))

    def _alone(self, asked: _Asked, document: str, is_cut: bool) -> tuple[str, bool]:
        """Shorten a document further that takes more tokens inside of a prompt than alone."""
        while (excess := len(self._ids(asked.prompt([document]))) - self.max_length) > 0:
            num_tokens = len(self.backend.encode(document, add_special_tokens=False).ids)
            kept = num_tokens - excess
            document, is_cut = self._first_tokens([document], kept)[0][0] if kept > 0 else "", True
        return document, is_cut

    def _first_tokens(self, texts: Sequence[str], limit: int | None) -> list[tuple[str, bool]]:
        if limit is None:
            return [(text, False) for text in texts]
        return first_tokens(self.backend, self.locality, texts, limit)

    def _harmless(self, texts: Sequence[str]) -> list[str]:
        """Take the marks out of texts of the caller's, as the model's own code does, and break other control tokens."""
        marks = self._mark(self.spec.document_token_id), self._mark(self.spec.query_token_id)
        mark = re.compile("|".join(map(re.escape, marks)))
        control = control_pattern(self.backend, [_SYSTEM, _END, *marks])
        return [neutral(mark.sub("", scalar_text(text)), control) for text in texts]

    def _mark(self, token_id: int) -> str:
        mark: str | None = self.backend.id_to_token(token_id)
        if mark is None:
            raise CheckpointError(f"the tokenizer has no token {token_id}, which marks a text of a listwise reranker")
        return mark

    def _ids(self, text: str) -> IntArray:
        return np.array(self.backend.encode(text).ids, np.int64)

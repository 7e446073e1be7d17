"""Tokens become sequences: special tokens, prompt, token types and expansion, for whole texts, blocks and pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cenote.checkpoint.spec import TextSpec
from cenote.text.blocks import BlockCutter, Blocks
from cenote.text.colbert import expand_query
from cenote.text.content import Content
from cenote.text.inputs import Place
from cenote.text.options import EncodeOptions
from cenote.text.pieces import PieceContext, PiecedText, Pieces, Window
from cenote.text.plan import Plan
from cenote.text.tokenized import IntArray, TokenizedText
from cenote.text.truncate import cut


@dataclass(frozen=True, kw_only=True)
class Framing:
    """What of a model decides how its sequences look. `prompt_ids` gives the tokens of a prompt alone."""

    spec: TextSpec
    has_types: bool
    special_ids: frozenset[int]
    max_length: int
    prompt_ids: Callable[[str], IntArray]

    def from_ids(self, ids: IntArray, place: Place, plan: Plan) -> TokenizedText:
        """Return the sequence of a caller's own ids, cut where they are too many."""
        plan.check_length(place, len(ids))
        kept = cut(ids, plan.limit, plan.side)
        return TokenizedText(
            token_ids=kept,
            token_type_ids=np.zeros(len(kept), np.int64) if self.has_types else None,
            num_keys=len(kept),
            truncated=len(kept) < len(ids),
            input_type=plan.options.input_type,
        )

    def from_content(self, content: Content, place: Place, plan: Plan) -> TokenizedText:
        """Return the sequence of one text."""
        plan.check_length(place, content.length + plan.frame.size, is_exact=content.is_exact)
        ids = plan.frame.join(content.ids)
        if not len(ids):
            raise place.error("has no tokens: this model's tokenizer adds no special tokens to an empty text")
        num_kept = len(content.ids)
        return TokenizedText(
            token_ids=ids,
            token_type_ids=plan.frame.token_types(num_kept) if self.has_types else None,
            num_keys=len(ids),
            truncated=num_kept < content.length,
            num_prompt_tokens=self._num_prompt_rows(plan, num_lost=content.length - num_kept),
            input_type=plan.options.input_type or (None if plan.options.raw else "document"),
            offsets=_offsets(content, plan),
        )

    def expanded(self, sequences: list[TokenizedText], options: EncodeOptions) -> list[TokenizedText]:
        """Return ColBERT's queries with their expansion, other sequences as they are."""
        expansion = self.spec.expansion
        if expansion is None or options.input_type != "query" or options.raw:
            return sequences
        return [expand_query(sequence, expansion, self.max_length) for sequence in sequences]

    def id_blocks(self, ids: IntArray, place: Place, cutter: BlockCutter, plan: Plan) -> Blocks:
        """Return the blocks of a caller's own ids."""
        cut_ids = cutter.cut(ids)
        sequences = [self.from_ids(block, place, plan) for block in cut_ids.blocks]
        return Blocks(sequences=sequences, weights=cut_ids.weights)

    def text_blocks(self, content: Content, place: Place, cutter: BlockCutter, plan: Plan) -> Blocks:
        """Return the blocks of one text, one where it fits."""
        if content.length <= plan.room:
            return Blocks(sequences=self.expanded([self.from_content(content, place, plan)], plan.options), weights=[1])
        cut_ids = cutter.cut(content.ids)
        whole = [Content(block, None, len(block), is_exact=True) for block in cut_ids.blocks]
        num_rows = plan.frame.num_leading + cut_ids.num_prompt_ids if plan.prompt else 0
        sequences = [replace(self.from_content(each, place, plan), num_prompt_tokens=num_rows) for each in whole]
        return Blocks(sequences=self.expanded(sequences, plan.options), weights=cut_ids.weights)

    def pieced(self, pieces: Pieces, place: Place, plan: Plan, split: bool) -> PiecedText:
        """Return one text in pieces, in as many contexts as it takes."""
        windows = pieces.contexts(plan.room, place, split=split)
        contexts = [self._piece_context(pieces, window, plan) for window in windows]
        return PiecedText(contexts=contexts, characters=pieces.characters)

    def _piece_context(self, pieces: Pieces, window: Window, plan: Plan) -> PieceContext:
        size = pieces.num_prompt_ids
        ids = np.concatenate([pieces.ids[:size], pieces.ids[size + window.start : size + window.stop]])
        rows = pieces.tokens[window.pieces] - window.start + size + plan.frame.num_leading
        return PieceContext(
            sequence=self.from_content(Content(ids, None, len(ids), is_exact=True), Place("", None), plan),
            segments=tuple((first, last) for first, last in rows.tolist()),
        )

    def _num_prompt_rows(self, plan: Plan, num_lost: int) -> int:
        """Count as sentence-transformers does: the prompt encoded alone, less a special token at its end.

        Where the left end was cut, only what is left of the prompt counts.
        """
        if not plan.prompt:
            return 0
        alone = plan.frame.join(cut(self.prompt_ids(plan.prompt), plan.room, plan.side))
        num_rows = len(alone) - int(len(alone) > 0 and int(alone[-1]) in self.special_ids)
        return max(plan.frame.num_leading, num_rows - num_lost) if plan.side == "left" else num_rows


def _offsets(content: Content, plan: Plan) -> IntArray | None:
    """Move offsets from the string with its prompt to the caller's own; -1 where there is no text of the caller's."""
    if content.offsets is None:
        return None
    shift = len(plan.prompt)
    spans = np.maximum(content.offsets - shift, 0)
    if shift:
        spans[content.offsets[:, 1] <= shift] = -1
    before, after = (np.full((len(part), 2), -1, np.int64) for part in plan.frame.parts)
    return np.concatenate([before, spans, after])

"""Single texts as sequences: each whole, in blocks, or in pieces that share a context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from cenote.checkpoint.spec import TextSpec
from cenote.errors import InputError, OptionError
from cenote.text.blocks import BlockCutter, Blocks
from cenote.text.colbert import length_limit, marked_frame
from cenote.text.content import Content, Wanted, read_contents
from cenote.text.frame import Frame, read_single_frame
from cenote.text.framing import Framing
from cenote.text.inputs import Texts, read_inputs
from cenote.text.load import LoadedTokenizer
from cenote.text.locality import Locality
from cenote.text.options import EncodeOptions
from cenote.text.piece_reader import PieceCut, PiecedTexts, PieceReader
from cenote.text.pieces import PiecedText
from cenote.text.plan import Plan
from cenote.text.prompts import choose_prompt
from cenote.text.tokenized import IntArray, TokenizedText
from cenote.text.unicode import scalar_text

_NO_IDS = np.zeros(0, np.int64)
_CACHED_PROMPTS = 256


@dataclass(frozen=True, kw_only=True)
class SingleEncoder:
    """Encodes texts one by one: strings with the prompt of their request, a caller's own ids as they are.

    Raises `OptionError` where `max_length` leaves no room for the tokenizer's special tokens.
    """

    spec: TextSpec
    tokenizer: LoadedTokenizer
    locality: Locality
    has_types: bool
    vocab_size: int
    max_length: int

    def __post_init__(self) -> None:
        if self.max_length < max(1, self.frame.size):
            raise OptionError(
                f"max_length {self.max_length} leaves no room: this tokenizer adds {self.frame.size} special tokens"
            )

    def encode(self, texts: Texts, options: EncodeOptions) -> list[TokenizedText]:
        """Return one sequence for each text, in order."""
        inputs = read_inputs(texts, param=options.param, vocab_size=self.vocab_size)
        plan = self._plan(options)
        if inputs.token_ids is not None:
            return [
                self._framing.from_ids(ids, place, plan)
                for ids, place in zip(inputs.token_ids, inputs.places, strict=True)
            ]
        wanted = Wanted(limit=plan.room, side=plan.side, offsets=options.offsets, exact=not options.truncate)
        contents = self._contents(inputs.texts or [], wanted, plan)
        sequences = [self._framing.from_content(*pair, plan) for pair in zip(contents, inputs.places, strict=True)]
        return self._framing.expanded(sequences, options)

    def encode_blocks(self, texts: Texts, options: EncodeOptions, *, overlap: int) -> list[Blocks]:
        """Return each text as sequences that fit: one, or blocks with `overlap` tokens in common."""
        inputs = read_inputs(texts, param=options.param, vocab_size=self.vocab_size)
        plan = self._plan(options)
        if inputs.token_ids is not None:
            cutter = BlockCutter(limit=plan.limit, prompt_ids=_NO_IDS, overlap=overlap)
            return [
                self._framing.id_blocks(ids, place, cutter, plan)
                for ids, place in zip(inputs.token_ids, inputs.places, strict=True)
            ]
        cutter = BlockCutter(limit=plan.room, prompt_ids=self._ids_before(plan), overlap=overlap)
        contents = self._contents(inputs.texts or [], Wanted(limit=None, side=plan.side), plan)
        return [self._framing.text_blocks(*pair, cutter, plan) for pair in zip(contents, inputs.places, strict=True)]

    def encode_pieces(
        self, texts: PiecedTexts, cut_at: PieceCut, options: EncodeOptions, *, split: bool
    ) -> list[PiecedText]:
        """Return each text in pieces that share a context, several contexts where it is too long and may `split`."""
        plan = self._plan(options)
        wanted = Wanted(limit=None, side=plan.side, offsets=True)
        reader = PieceReader(
            prompt=plan.prompt,
            prompt_ids=self._ids_before(plan),
            read=lambda strings: read_contents(self.tokenizer.backend, self.locality, strings, wanted),
        )
        found = reader.pieces(texts, cut_at, options.param)
        return [self._framing.pieced(pieces, place, plan, split) for pieces, place in found]

    @cached_property
    def frame(self) -> Frame:
        """The special tokens around every text."""
        return read_single_frame(self.tokenizer.backend)

    @cached_property
    def _framing(self) -> Framing:
        return Framing(
            spec=self.spec,
            has_types=self.has_types,
            special_ids=self.tokenizer.special_ids,
            max_length=self.max_length,
            prompt_ids=self._prompt_ids,
        )

    @cached_property
    def _prompt_ids(self) -> Callable[[str], IntArray]:
        return lru_cache(maxsize=_CACHED_PROMPTS)(self._read_prompt)

    def _read_prompt(self, prompt: str) -> IntArray:
        return np.array(self.tokenizer.backend.encode(prompt, add_special_tokens=False).ids, np.int64)

    def _ids_before(self, plan: Plan) -> IntArray:
        """Return the tokens of the prompt alone."""
        return self._prompt_ids(plan.prompt) if plan.prompt else _NO_IDS

    def _contents(self, texts: list[str], wanted: Wanted, plan: Plan) -> list[Content]:
        prompted = [plan.prompt + text for text in texts]
        return read_contents(self.tokenizer.backend, self.locality, prompted, wanted)

    def _plan(self, options: EncodeOptions) -> Plan:
        frame, limit = self.frame, min(self.max_length, options.max_length or self.max_length)
        expansion = self.spec.expansion
        if not options.add_special_tokens:
            frame = frame.without_specials()
        if expansion is not None and options.input_type is not None and not options.raw:
            frame = marked_frame(frame, expansion, options.input_type)
            limit = min(limit, length_limit(expansion, options.input_type) or limit)
        if limit < frame.size:
            raise InputError(
                f"max_length {limit} leaves no room: this model adds {frame.size} special tokens", param="max_length"
            )
        return Plan(
            frame=frame,
            limit=limit,
            side=options.truncation_side or self.tokenizer.truncation_side,
            prompt="" if options.raw else scalar_text(choose_prompt(self.spec, options, options.input_type)),
            options=options,
        )

"""Which prompt a checkpoint's pairs are written into: its own template where that has a place for both texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cenote.checkpoint.spec import TextSpec
from cenote.config import as_option
from cenote.errors import CheckpointError
from cenote.text.chat import ChatEncoder, Messages
from cenote.text.control_tokens import control_pattern, neutral
from cenote.text.inputs import Place
from cenote.text.options import ChatOptions, PairOptions
from cenote.text.pair_prompt import PairPrompt, Piece
from cenote.text.prompt_families import FAMILY_PROMPTS
from cenote.text.prompt_template import read_pair_template
from cenote.text.prompted_pairs import PromptedPairEncoder
from cenote.text.prompts import choose_prompt
from cenote.text.tokenized import TokenizedText

_ANY_LENGTH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PromptedPairs:
    """A checkpoint's prompt for pairs, and the encoder that writes them into it."""

    spec: TextSpec
    prompt: PairPrompt
    encoder: PromptedPairEncoder

    def encode(
        self, queries: str | Sequence[str], documents: str | Sequence[str], options: PairOptions
    ) -> list[TokenizedText]:
        """Return one sequence for each pair; the checkpoint's own prompt is the instruction where none is given."""
        instruction = options.instruction
        if instruction is None:
            instruction = choose_prompt(self.spec, options) or None
        else:
            instruction = neutral(instruction, self.encoder.control)
        return self.encoder.encode(queries, documents, self.prompt.pieces_for(instruction), options)


def read_prompted_pairs(spec: TextSpec, chats: ChatEncoder) -> PromptedPairs:
    """Find the prompt of pairs: the one that the user named, the checkpoint's template, or that of its family.

    Raise `CheckpointError` where there is none, or where the tokenizer does not read it piece by piece.
    """
    prompt = _own_prompt(chats) if chats.template and not spec.prefers_pair_prompt else None
    if prompt is None and spec.pair_prompt is not None:
        prompt = FAMILY_PROMPTS.get(spec.pair_prompt)
    if prompt is None:
        raise CheckpointError(
            f"the scores of this model need a prompt, and {spec.tokenizer_folder} has no chat template that writes out "
            "messages of the roles `query` and `document`: put one into a file chat_template.jinja there, or say which "
            f"published prompt it was trained with by {as_option('prompt_family', *FAMILY_PROMPTS)}"
        )
    return PromptedPairs(spec=spec, prompt=prompt, encoder=_encoder(chats, _fixed_texts(prompt)))


def _own_prompt(chats: ChatEncoder) -> PairPrompt | None:
    def render(messages: Messages) -> str:
        return chats.render(messages, ChatOptions(), Place("the template", None))

    def control(fixed: str) -> re.Pattern[str]:
        return control_pattern(chats.tokenizer.backend, [fixed])

    prompt = read_pair_template(render, control)
    if prompt is not None:
        _check_pieces(prompt, chats)
    return prompt


def _check_pieces(prompt: PairPrompt, chats: ChatEncoder) -> None:
    """Raise `CheckpointError` where the tokens of the pieces are not those of the whole text."""
    encoder = replace(_encoder(chats, _fixed_texts(prompt)), max_length=_ANY_LENGTH)
    query, document = "Why is that so?", "For a reason. "
    for pieces in (prompt.plain, prompt.instructed):
        if pieces is None:
            continue
        whole = "".join(
            piece.fill({"instruction": "Find it.", "query": query, "document": document}) for piece in pieces
        )
        filled = PairPrompt(plain=(), instructed=pieces).pieces_for("Find it.")
        (read,) = encoder.encode(query, document, filled, PairOptions())
        if not np.array_equal(read.token_ids, chats.tokenizer.backend.encode(whole, add_special_tokens=False).ids):
            raise CheckpointError("the checkpoint's tokenizer does not read its chat template piece by piece")


def _encoder(chats: ChatEncoder, fixed_texts: list[str]) -> PromptedPairEncoder:
    return PromptedPairEncoder(
        backend=chats.tokenizer.backend,
        locality=chats.locality,
        control=control_pattern(chats.tokenizer.backend, fixed_texts),
        has_types=chats.has_types,
        max_length=chats.max_length,
    )


def _fixed_texts(prompt: PairPrompt) -> list[str]:
    pieces: tuple[Piece, ...] = (*prompt.plain, *(prompt.instructed or ()))
    return [part for piece in pieces for part in piece.parts if isinstance(part, str)]

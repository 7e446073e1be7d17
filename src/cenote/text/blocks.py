"""Texts over the limit in blocks that fit: nothing is left out, and each block is a whole sequence of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cenote.errors import InputError
from cenote.text.tokenized import IntArray, TokenizedText


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """One text as sequences: a single one where it fits. `weights` counts the text's own tokens in each."""

    sequences: list[TokenizedText]
    weights: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutText:
    """The ids of one text's blocks. Each begins with the same `num_prompt_ids` ids of the prompt."""

    blocks: list[IntArray]
    num_prompt_ids: int

    @property
    def weights(self) -> list[int]:
        """How many tokens of the text each block has."""
        return [len(block) - self.num_prompt_ids for block in self.blocks]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCutter:
    """Cuts texts into blocks of `limit` tokens, the prompt counted and special tokens not.

    `prompt_ids` are the prompt's alone. Neighbouring blocks share `overlap` tokens of the text, at most half of what a
    block has of it, so that no request reads much more than twice its own tokens. Raises `InputError` where prompt or
    overlap leave too little of a block to the text.
    """

    limit: int
    prompt_ids: IntArray
    overlap: int

    def __post_init__(self) -> None:
        check_prompt_share(len(self.prompt_ids), self.limit)
        room = self.limit - len(self.prompt_ids)
        if not 0 <= self.overlap <= room // 2:
            raise InputError(
                f"chunk_overlap must be at least 0 and at most half of the {room} tokens that a block has of the text, "
                f"not {self.overlap}",
                param="chunk_overlap",
            )

    def cut(self, ids: IntArray) -> CutText:
        """Cut the `ids` of the prompt and a text, tokenised together. The first block is what truncation keeps.

        A tokenizer may join the end of the prompt with the beginning of the text: what is joined is the text's.
        """
        size = common_prefix(self.prompt_ids, ids)
        prompt, content = ids[:size], ids[size:]
        parts = block_slices(len(content), self.limit - size, self.overlap)
        return CutText(blocks=[np.concatenate([prompt, content[part]]) for part in parts], num_prompt_ids=size)


def check_prompt_share(num_prompt_ids: int, limit: int) -> None:
    """Raise `InputError` where a prompt that is to stand before every part of a text takes over half of the `limit`."""
    if limit < 1 or 2 * num_prompt_ids > limit:
        raise InputError(
            f"the prompt has {num_prompt_ids} of the {limit} tokens that fit; to read a long text in parts it may have "
            "at most half of them",
            param="prompt",
        )


def common_prefix(first: IntArray, second: IntArray) -> int:
    """Return how many ids both begin with."""
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if len(different) else shorter


def block_slices(length: int, room: int, overlap: int) -> list[slice]:
    """Return the rows of each block: `room` of them, fewer in the last, the first `overlap` those of the one before."""
    starts = range(0, max(length - overlap, 1), room - overlap)
    return [slice(start, min(start + room, length)) for start in starts]

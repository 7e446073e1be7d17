"""Sequences of one step that begin alike compute what they share once: an instruction, a template, a query.

The first of a group runs whole; the others run only what follows the shared prefix and attend to the first one's rows.
The rule: only within a step, only for causal models, and only where every task is pooled from the last row, because the
other tasks need all rows. Nothing is kept from one step to the next, so what ran before never changes an answer.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace
from itertools import pairwise

import numpy as np

from cenote.models.batch import IntArray
from cenote.runtime.request import Piece

MIN_SHARED_TOKENS = 16
"""A shorter prefix costs more in bookkeeping than it saves."""


def share_prefixes(pieces: Many[Piece]) -> list[Piece]:
    """Return `pieces` in the same order, those that share a prefix with an earlier one cut to what follows it."""
    shared = list(pieces)
    eligible = [i for i, piece in enumerate(pieces) if piece.sequence.shares_prefix and piece.state is None]
    if len(eligible) < 2:
        return shared
    for group, length in _groups([pieces[i].sequence.token_ids for i in eligible]):
        leader, *others = sorted(eligible[i] for i in group)
        for i in others:
            shared[i] = replace(pieces[i], start=length, leader=leader)
    return shared


def _groups(texts: list[IntArray]) -> list[tuple[list[int], int]]:
    """Return groups of two or more texts, by their positions, with the number of tokens that each group shares."""
    order = sorted(range(len(texts)), key=lambda i: texts[i].astype(">i8").tobytes())
    groups: list[tuple[list[int], int]] = []
    group, shared = [order[0]], 0
    for before, after in pairwise(order):
        common = _common_prefix(texts[before], texts[after])
        longer = min(common, shared) if len(group) > 1 else common
        if longer >= MIN_SHARED_TOKENS and longer * len(group) >= shared * (len(group) - 1):
            group, shared = [*group, after], longer
        else:
            groups.append((group, shared))
            group, shared = [after], 0
    groups.append((group, shared))
    return [each for each in groups if len(each[0]) > 1]


def _common_prefix(first: IntArray, second: IntArray) -> int:
    """Return how many tokens both begin with, leaving each at least its last one."""
    length = min(len(first), len(second)) - 1
    differ = first[:length] != second[:length]
    return int(np.argmax(differ)) if differ.any() else length

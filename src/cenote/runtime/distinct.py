"""Sequences of one request that are alike in everything are computed once."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Many

from cenote.runtime.request import Sequence


def distinct(sequences: Many[Sequence]) -> tuple[list[Sequence], list[int]]:
    """Return the sequences without repetitions, and for each of the given ones its place among them."""
    if len(sequences) == 1:
        return list(sequences), [0]
    found: list[Sequence] = []
    places: list[int] = []
    seen: dict[Hashable, int] = {}
    for sequence in sequences:
        place = seen.setdefault(_key(sequence), len(found))
        if place == len(found):
            found.append(sequence)
        places.append(place)
    return found, places


def _key(sequence: Sequence) -> Hashable:
    types = sequence.token_type_ids
    return (
        sequence.token_ids.tobytes(),
        None if types is None else types.tobytes(),
        sequence.num_keys,
        tuple(sequence.params.items()),
    )

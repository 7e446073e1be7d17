"""Rows that a sequence sees besides its own of this step: its earlier chunks, or a prefix that it shares with others.

Only causal models have them. Shapes: N sequences, G key heads, L rows of each, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

KeyValue = tuple[torch.Tensor, torch.Tensor]


class Context(Protocol):
    """What comes before the rows of a sequence: `num_rows` of them, all visible to each."""

    @property
    def num_rows(self) -> int: ...

    def extend(self, layer_index: int, own: KeyValue, step: KeyValue) -> KeyValue:
        """Return keys and values `[N, G, num_rows + L, D]`: those of the context, then `own` `[N, G, L, D]`.

        `step` are the keys and values `[G, T, D]` of all rows of the step, in this layer.
        """


@dataclass(eq=False)
class KeyValueCache:
    """The keys and values of one sequence that runs in chunks, in every layer.

    Its final length is known when it arrives, so each layer's buffer is exactly that long and in one piece.
    """

    num_tokens: int
    layers: dict[int, KeyValue] = field(default_factory=dict)

    def write(self, layer_index: int, start: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put `[G, L, D]` rows at `start`; writing a chunk again changes nothing."""
        if layer_index not in self.layers:
            self.layers[layer_index] = self._empty(key), self._empty(value)
        for buffer, rows in zip(self.layers[layer_index], (key, value), strict=True):
            buffer[:, start : start + rows.shape[1]] = rows

    def read(self, layer_index: int, stop: int) -> KeyValue:
        """Return the first `stop` rows `[G, stop, D]` of a layer."""
        key, value = self.layers[layer_index]
        return key[:, :stop], value[:, :stop]

    def _empty(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.new_empty((rows.shape[0], self.num_tokens, rows.shape[2]))


@dataclass(frozen=True, eq=False)
class EarlierChunks:
    """The first `num_rows` rows of a sequence, kept in `cache` by earlier steps."""

    cache: KeyValueCache
    num_rows: int

    def extend(self, layer_index: int, own: KeyValue, step: KeyValue) -> KeyValue:  # noqa: ARG002 - shared contract
        key, value = own
        self.cache.write(layer_index, self.num_rows, key[0], value[0])
        key, value = self.cache.read(layer_index, self.num_rows + key.shape[2])
        return key[None], value[None]


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """`num_rows` rows of this very step, from row `start` on, that several sequences begin with."""

    start: int
    num_rows: int

    def extend(self, layer_index: int, own: KeyValue, step: KeyValue) -> KeyValue:  # noqa: ARG002 - shared contract
        key, value = (self._before(rows, before) for rows, before in zip(own, step, strict=True))
        return key, value

    def _before(self, own: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        prefix = step[:, self.start : self.start + self.num_rows]
        return torch.cat([prefix.expand(own.shape[0], *prefix.shape), own], dim=2)

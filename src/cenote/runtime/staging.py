"""Host buffers for what goes up: a ring, so that a step can be staged while the copy of the one before still runs.

A buffer is rewritten only after the event of the copy that read it. Taking syncs out of a step without this rule is
known to give stale positions and wrong numbers.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch

from cenote.models.batch import IntArray, PackedBatch
from cenote.models.context import Context, EarlierChunks, SharedPrefix
from cenote.runtime.device import Device, Event
from cenote.runtime.request import Piece


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLayout:
    """What a model wants in its batch: where positions start, and whether token types are read."""

    position_offset: int
    uses_token_types: bool


@dataclass(slots=True)
class _Buffer:
    host: torch.Tensor
    copied: Event | None = None


class Staging:
    """A ring of `num_buffers` host buffers, by default as many as there are steps in flight.

    That is enough never to wait: before a step is staged, the one that used its buffer last has been waited for. Only
    a step that failed after its copy was launched has not, and then the event keeps the buffer. `num_stalls` counts the
    claims that had to wait for one.
    """

    def __init__(self, device: Device, layout: BatchLayout, num_buffers: int | None = None) -> None:
        self._device = device
        self._layout = layout
        size = num_buffers or device.steps_in_flight
        self._ring = [_Buffer(device.host_buffer(0, torch.int64)) for _ in range(size)]
        self._turn = 0
        self.num_stalls = 0

    def stage(self, pieces: Many[Piece]) -> PackedBatch:
        """Lay `pieces` end to end on the device: one copy of one buffer.

        The buffer holds ids, positions, token types where the model reads them, and cumulated lengths.
        """
        lens_np = np.array([len(piece) for piece in pieces], dtype=np.int64)
        num_tokens = int(lens_np.sum())
        rows = 3 if self._layout.uses_token_types else 2
        size = rows * num_tokens + len(pieces) + 1
        buffer = self._claim(size)
        self._fill(buffer.host.numpy(), pieces, lens_np)
        device_buffer = self._device.copy_to_device(buffer.host[:size])
        buffer.copied = self._device.record()
        ids, positions, *types = device_buffer[: rows * num_tokens].view(rows, num_tokens)
        return PackedBatch(
            input_ids_T=ids,
            positions_T=positions,
            token_type_ids_T=types[0] if types else None,
            cu_seqlens=device_buffer[rows * num_tokens :].to(torch.int32),
            seq_lens_np=lens_np,
            num_keys_np=np.array([_num_keys(piece) for piece in pieces], dtype=np.int64),
            contexts=_contexts(pieces, lens_np),
        )

    def _claim(self, size: int) -> _Buffer:
        buffer = self._ring[self._turn]
        self._turn = (self._turn + 1) % len(self._ring)
        if buffer.copied is not None and not buffer.copied.passed():
            self.num_stalls += 1
            buffer.copied.wait()
        if buffer.host.numel() < size:
            buffer.host = self._device.host_buffer(max(size, 2 * buffer.host.numel()), torch.int64)
        return buffer

    def _fill(self, out_np: IntArray, pieces: Many[Piece], lens_np: IntArray) -> None:
        num_tokens = int(lens_np.sum())
        ends_np = np.cumsum(lens_np)
        ids = [piece.sequence.token_ids[piece.start : piece.stop] for piece in pieces]
        np.concatenate(ids, out=out_np[:num_tokens])
        first_np = np.array([piece.start for piece in pieces], dtype=np.int64)
        starts_np = np.repeat(ends_np - lens_np - first_np, lens_np)
        np.subtract(np.arange(num_tokens), starts_np, out=out_np[num_tokens : 2 * num_tokens])
        out_np[num_tokens : 2 * num_tokens] += self._layout.position_offset
        offset = 2 * num_tokens
        if self._layout.uses_token_types:
            types = [_token_types(piece) for piece in pieces]
            np.concatenate(types, out=out_np[offset : offset + num_tokens])
            offset += num_tokens
        out_np[offset] = 0
        out_np[offset + 1 : offset + 1 + len(lens_np)] = ends_np


def _token_types(piece: Piece) -> IntArray:
    if piece.sequence.token_type_ids is not None:
        return piece.sequence.token_type_ids[piece.start : piece.stop]
    return np.zeros(len(piece), dtype=np.int64)


def _num_keys(piece: Piece) -> int:
    return piece.sequence.num_keys if len(piece) == len(piece.sequence) else len(piece)


def _contexts(pieces: Many[Piece], lens_np: IntArray) -> tuple[Context | None, ...] | None:
    if all(piece.start == 0 and piece.state is None for piece in pieces):
        return None
    first_rows = (np.cumsum(lens_np) - lens_np).tolist()
    prefixes: dict[tuple[int, int], SharedPrefix] = {}
    return tuple(_context(piece, first_rows, prefixes) for piece in pieces)


def _context(piece: Piece, first_rows: list[int], prefixes: dict[tuple[int, int], SharedPrefix]) -> Context | None:
    """Return what comes before a piece; pieces with the same leader get the same object, so that they run together."""
    if piece.state is not None:
        return EarlierChunks(piece.state.cache, piece.start)
    if piece.leader is None:
        return None
    return prefixes.setdefault(
        (piece.leader, piece.start), SharedPrefix(start=first_rows[piece.leader], num_rows=piece.start)
    )

"""One step of one model: stage, forward, pool, copy back. `launch` does not wait for the device; `result` does."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from cenote.errors import CenoteError, NonFiniteError
from cenote.models.batch import IntArray, PackedBatch
from cenote.models.load import LoadedModel
from cenote.params import PoolingParamsUpdate, TaskParams
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor
from cenote.pooling.output import OutputEntry, pack_outputs
from cenote.runtime.device import Device, Event
from cenote.runtime.prefix import share_prefixes
from cenote.runtime.request import Piece, Results, Sequence
from cenote.runtime.staging import BatchLayout, Staging

HostArrays = dict[torch.dtype, npt.NDArray[np.generic]]
HostBuffers = dict[torch.dtype, tuple[torch.Tensor, Event]]


class InFlight(Protocol):
    """A launched step."""

    @property
    def ended(self) -> bool | None:
        """Whether the step has ended; `None` where only `result` can tell."""

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call back once `ended` turns true, on any thread."""

    def result(self) -> list[Results | CenoteError]:
        """Wait for the step; return, in the order of its pieces, each one's `Results` or its sequence's error.

        The results of a chunk that is not its sequence's last are empty.
        """


@dataclass(frozen=True, kw_only=True)
class _Launched:
    """A step on its way: what comes back, and when."""

    pieces: Many[Piece]
    pooler: DispatchPooler
    table: Many[OutputEntry]
    buffers: HostBuffers
    computed: Event

    @property
    def ended(self) -> None:
        return None

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Do nothing: a device does not call back."""

    def result(self) -> list[Results | CenoteError]:
        """Wait for the step and finish its rows on the host: the one wait of the hot path."""
        for event in [event for _, event in self.buffers.values()] or [self.computed]:
            event.wait()
        host = {dtype: _owned(buffer) for dtype, (buffer, _) in self.buffers.items()}
        results: list[Results | CenoteError] = [{} for _ in self.pieces]
        for entry in self.table:
            self._finish(entry, host, results)
        return results

    def _finish(self, entry: OutputEntry, host: HostArrays, results: list[Results | CenoteError]) -> None:
        done = results[entry.sequence]
        if isinstance(done, CenoteError):
            return
        rows_np = entry.view(host)
        if not np.isfinite(rows_np).all():
            results[entry.sequence] = NonFiniteError(f"the model gave a value that is not finite for {entry.task!r}")
            return
        sequence = self.pieces[entry.sequence].sequence
        done[entry.task] = self.pooler.finish(entry.task, rows_np, sequence.token_ids, sequence.params[entry.task])


class ModelRunner:
    """Runs steps of one loaded model on one device."""

    def __init__(self, model: LoadedModel, pooler: DispatchPooler, device: Device) -> None:
        self.model = model
        self.pooler = pooler
        self.device = device
        layout = BatchLayout(position_offset=model.position_offset, uses_token_types=model.uses_token_types)
        self._staging = Staging(device, layout)
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """How many rows it has run."""
        return self._num_tokens

    @property
    def num_workers(self) -> int:
        """How many steps run at the same time; where it is one, steps end in their order."""
        return 1

    @property
    def steps_in_flight(self) -> int:
        """How many steps may be launched before one is waited for."""
        return self.device.steps_in_flight

    @torch.inference_mode()
    def launch(self, pieces: Many[Piece]) -> InFlight:
        """Start a step over `pieces` and return at once, as far as the device allows."""
        pieces = share_prefixes(pieces)
        self._num_tokens += sum(map(len, pieces))
        for piece in pieces:
            if piece.state is not None:
                piece.state.pooling.rewind(piece.start)
        batch = self._staging.stage(pieces)
        hidden_TH = self.model.backbone(batch)
        outputs = self.pooler(hidden_TH, self._metadata(batch, pieces))
        flat = pack_outputs(outputs)
        buffers = {dtype: self.device.copy_to_host(buffer) for dtype, buffer in flat.buffers.items()}
        return _Launched(
            pieces=pieces, pooler=self.pooler, table=flat.entries, buffers=buffers, computed=self.device.record()
        )

    def launch_alone(self, pieces: Many[Piece]) -> InFlight:
        """Launch a step beside which nothing else is to run."""
        return self.launch(pieces)

    def _metadata(self, batch: PackedBatch, pieces: Many[Piece]) -> PoolingMetadata:
        cursor = build_pooling_cursor(
            num_scheduled_tokens_np=batch.seq_lens_np,
            prompt_lens_np=np.array([len(piece.sequence) for piece in pieces], dtype=np.int64),
            seq_lens_np=np.array([piece.stop for piece in pieces], dtype=np.int64),
            device=self.device.torch_device,
            query_start_loc_gpu=batch.cu_seqlens,
        )
        return PoolingMetadata(
            prompt_lens=cursor.prompt_lens_cpu,
            token_ids_np=[_token_ids(piece.sequence) for piece in pieces],
            params_by_task=[piece.sequence.params for piece in pieces],
            pooling_states=[PoolingStates() if piece.state is None else piece.state.pooling for piece in pieces],
            pooling_cursor=cursor,
        )


def batch_order(piece: Piece) -> tuple[list[str], int, int]:
    """Sort key of a step: runs of equal task sets, and in them of equal lengths."""
    return sorted(piece.sequence.params), len(piece), piece.sequence.num_keys


def _token_ids(sequence: Sequence) -> IntArray | None:
    needed = any(params.requires_token_ids for params in sequence.params.values())
    return sequence.token_ids if needed else None


def with_updates(params: TaskParams, pooler: DispatchPooler) -> TaskParams:
    """Return `params` with what the poolers of all their tasks need switched on."""
    update = PoolingParamsUpdate()
    for task in params:
        update = update | pooler.get_pooling_updates(task)
    return {task: update.apply(task_params) for task, task_params in params.items()}


def _owned(buffer: torch.Tensor) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = buffer.numpy()
    return array.copy() if buffer.is_pinned() else array

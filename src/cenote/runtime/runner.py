"""One step of one model: stage, forward, pool, copy back. `launch` never blocks; `InFlight.result` does."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

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
from cenote.runtime.request import Results, Sequence
from cenote.runtime.staging import BatchLayout, Staging

HostArrays = dict[torch.dtype, npt.NDArray[np.generic]]
HostBuffers = dict[torch.dtype, tuple[torch.Tensor, Event]]


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """A launched step. Its results come in the order of its sequences, each a `Results` or that sequence's error."""

    sequences: Many[Sequence]
    pooler: DispatchPooler
    table: Many[OutputEntry]
    buffers: HostBuffers

    def result(self) -> list[Results | CenoteError]:
        """Wait for the step and finish its rows on the host: the one wait of the hot path."""
        for _, event in self.buffers.values():
            event.wait()
        host = {dtype: _owned(buffer) for dtype, (buffer, _) in self.buffers.items()}
        results: list[Results | CenoteError] = [{} for _ in self.sequences]
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
        sequence = self.sequences[entry.sequence]
        done[entry.task] = self.pooler.finish(entry.task, rows_np, sequence.token_ids, sequence.params[entry.task])


class ModelRunner:
    """Runs steps of one loaded model on one device."""

    def __init__(self, model: LoadedModel, pooler: DispatchPooler, device: Device) -> None:
        self.model = model
        self.pooler = pooler
        self.device = device
        layout = BatchLayout(position_offset=model.position_offset, uses_token_types=model.uses_token_types)
        self._staging = Staging(device, layout)

    @torch.inference_mode()
    def launch(self, sequences: Many[Sequence]) -> InFlight:
        """Start a step over `sequences` and return at once, as far as the device allows."""
        batch = self._staging.stage(sequences)
        hidden_TH = self.model.backbone(batch)
        outputs = self.pooler(hidden_TH, self._metadata(batch, sequences))
        flat = pack_outputs(outputs)
        buffers = {dtype: self.device.copy_to_host(buffer) for dtype, buffer in flat.buffers.items()}
        return InFlight(sequences=sequences, pooler=self.pooler, table=flat.entries, buffers=buffers)

    def _metadata(self, batch: PackedBatch, sequences: Many[Sequence]) -> PoolingMetadata:
        cursor = build_pooling_cursor(
            num_scheduled_tokens_np=batch.seq_lens_np,
            prompt_lens_np=batch.seq_lens_np,
            seq_lens_np=batch.seq_lens_np,
            device=self.device.torch_device,
            query_start_loc_gpu=batch.cu_seqlens,
        )
        return PoolingMetadata(
            prompt_lens=cursor.prompt_lens_cpu,
            token_ids_np=[_token_ids(sequence) for sequence in sequences],
            params_by_task=[sequence.params for sequence in sequences],
            pooling_states=[PoolingStates() for _ in sequences],
            pooling_cursor=cursor,
        )


def batch_order(sequence: Sequence) -> tuple[list[str], int, int]:
    """Sort key of a step: runs of equal task sets, and in them of equal lengths."""
    return sorted(sequence.params), len(sequence), sequence.num_keys


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

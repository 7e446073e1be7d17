"""The runner as it is, and with the habits that hidden synchronisation comes from put back in.

They exist for one comparison: what a step costs with the token ids uploaded, with boolean masks and `.item()`, and with
pageable blocking copies. On a CPU none of them makes anything wait, so only a GPU shows what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cenote.models.batch import PackedBatch
from cenote.pooling.metadata import PoolingMetadata
from cenote.runtime.device import Event, Passed
from cenote.runtime.request import Piece
from cenote.runtime.runner import InFlight, ModelRunner


class UploadedTokenIds(ModelRunner):
    """(a) The padded matrix of all token ids goes up in each step, as it did before poolers read ids on the host."""

    def _metadata(self, batch: PackedBatch, pieces: Sequence[Piece]) -> PoolingMetadata:
        matrix_np = np.zeros((len(pieces), batch.max_seq_len), dtype=np.int64)
        for row, piece in zip(matrix_np, pieces, strict=True):
            row[: len(piece)] = piece.sequence.token_ids[piece.start : piece.stop]
        self.token_ids_gpu = torch.from_numpy(matrix_np).to(self.device.torch_device)
        return super()._metadata(batch, pieces)


class MasksAndItems(ModelRunner):
    """(b) Special tokens are found by a boolean mask on the device, and each text's first row by `.item()`."""

    def _metadata(self, batch: PackedBatch, pieces: Sequence[Piece]) -> PoolingMetadata:
        metadata = super()._metadata(batch, pieces)
        ids = batch.input_ids_T
        self.kept_rows_gpu = ids[(ids != 0) & (ids != 2)]
        cursor = metadata.get_pooling_cursor()
        self.first_rows = [index.item() for index in cursor.first_token_indices_gpu]
        return metadata


class _PageableDevice:
    """The device of a runner, with pageable host memory and copies that block."""

    def __init__(self, runner: ModelRunner) -> None:
        self._device = runner.device
        self.torch_device = runner.device.torch_device
        self.steps_in_flight = runner.device.steps_in_flight

    def host_buffer(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype)

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.torch_device)

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        return source.cpu(), Passed()

    def record(self) -> Event:
        return self._device.record()


class BlockingCopies(ModelRunner):
    """(c) Ids go up and results come down through pageable memory, each copy waited for."""

    def launch(self, pieces: Sequence[Piece]) -> InFlight:
        if not isinstance(self.device, _PageableDevice):
            self.device = _PageableDevice(self)
            self._staging._device = self.device
        return super().launch(pieces)


VARIANTS: dict[str, Callable[[ModelRunner], ModelRunner]] = {
    "sync-free": lambda runner: runner,
    "a: token ids uploaded": lambda runner: UploadedTokenIds(runner.model, runner.pooler, runner.device),
    "b: masks and .item()": lambda runner: MasksAndItems(runner.model, runner.pooler, runner.device),
    "c: pageable blocking copies": lambda runner: BlockingCopies(runner.model, runner.pooler, runner.device),
}

"""The steps of the audit on a real GPU: PyTorch's own check says that none waits, and every copy up was pinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from cenote.audit.clean import read_clean_ops
from cenote.audit.judge import Judge
from cenote.audit.model import DTYPES, asked_of, model_steps
from cenote.audit.watch import SyncWatch
from cenote.checkpoint import read_checkpoint
from cenote.models.load import load_model
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CudaDevice
from cenote.runtime.runner import ModelRunner
from tiny import FAMILIES, CheckpointFactory

pytestmark = pytest.mark.gpu


@contextmanager
def syncs_are_errors() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_waits(checkpoint: CheckpointFactory, family: str, dtype: torch.dtype) -> None:
    spec = read_checkpoint(checkpoint(family), pooling="mean")
    device = CudaDevice("cuda:0")
    model = load_model(spec, dtype=dtype, device=device.torch_device)
    runner = ModelRunner(model, build_pooler(spec, model, any_dimensions=True), device)
    watch = SyncWatch(Judge("cuda", read_clean_ops()))
    for _, pieces in model_steps(runner, spec, asked_of(runner, spec)):
        runner.launch(pieces).result()
        with watch, syncs_are_errors():
            in_flight = runner.launch(pieces)
        in_flight.result()
    assert not watch.findings, [finding.as_dict() for finding in watch.findings]

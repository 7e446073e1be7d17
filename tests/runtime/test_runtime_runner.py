"""A step: one wait, one copy back for each dtype, pinned memory where there is a device, errors where they belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.checkpoint import read_checkpoint
from cenote.errors import NonFiniteError
from cenote.models.batch import PackedBatch
from cenote.models.load import load_model
from cenote.params import PoolingParams, Task, TaskParams
from cenote.pooling.build import build_pooler
from cenote.runtime.device import CpuDevice, Device, Event
from cenote.runtime.device_late import LateDevice
from cenote.runtime.device_meta import MetaDevice
from cenote.runtime.request import Piece, Sequence
from cenote.runtime.runner import ModelRunner, batch_order
from cenote.runtime.warmup import warm_up
from cenote.transfer import async_tensor_h2d, is_pinned
from tiny import HIDDEN_SIZE, CheckpointFactory

TASKS: tuple[Task, ...] = ("embed", "embed_sparse", "token_embed", "token_classify")
MARKED = 77
"""A token id whose row is not finite."""


class CountingDevice(CpuDevice):
    """The CPU, with every copy noted."""

    def __init__(self) -> None:
        super().__init__()
        self.num_copies_up = 0
        self.copies_back: list[torch.dtype] = []

    def copy_to_device(self, host: torch.Tensor) -> torch.Tensor:
        self.num_copies_up += 1
        return super().copy_to_device(host)

    def copy_to_host(self, source: torch.Tensor) -> tuple[torch.Tensor, Event]:
        self.copies_back.append(source.dtype)
        return super().copy_to_host(source)


@pytest.fixture(scope="module")
def bge_m3(tmp_path_factory: pytest.TempPathFactory, checkpoint: CheckpointFactory) -> Path:
    """A model of four tasks."""
    from shutil import copytree

    folder = Path(copytree(checkpoint("xlm-roberta"), tmp_path_factory.mktemp("runner") / "m3"))
    torch.manual_seed(0)
    for name, columns in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        linear = {"weight": torch.randn(columns, HIDDEN_SIZE), "bias": torch.randn(columns)}
        torch.save(linear, folder / f"{name}.pt")
    return folder


def runner_of(folder: Path, device: Device) -> ModelRunner:
    spec = read_checkpoint(folder)
    model = load_model(spec, dtype=torch.float32, device=device.torch_device)
    return ModelRunner(model, build_pooler(spec, model, any_dimensions=True), device)


def piece(ids: list[int], *tasks: Task, **options: int) -> Piece:
    params: TaskParams = {task: PoolingParams(task=task, requires_token_ids=True, **options) for task in tasks}  # type: ignore[arg-type]
    return Piece(sequence=Sequence(token_ids=np.array(ids), params=params, num_keys=len(ids)), stop=len(ids))


def mixed_step() -> list[Piece]:
    pieces = [
        piece([0, 10, 11, 2], *TASKS),
        piece([0, 12, 2], "embed"),
        piece([0, 13, 14, 15, 2], "embed", dimensions=8),
        piece([0, 16, 2], "token_embed"),
        piece([0, 2], "embed_sparse"),
    ]
    return sorted(pieces, key=batch_order)


def test_one_copy_up_for_a_batch_and_one_back_for_each_dtype(bge_m3: Path) -> None:
    device = CountingDevice()
    runner_of(bge_m3, device).launch(mixed_step()).result()
    assert device.num_copies_up == 1
    assert device.copies_back == [torch.float32]


def test_two_dtypes_are_two_copies_back(bge_m3: Path) -> None:
    """A pooler may give half precision: it is copied once, beside the fp32 values."""
    device = CountingDevice()
    runner = runner_of(bge_m3, device)

    def halved(_: torch.nn.Module, __: object, rows: torch.Tensor) -> torch.Tensor:
        return rows.half()

    runner.pooler.poolers_by_task["embed"].register_forward_hook(halved)
    runner.launch([piece([0, 10, 2], *TASKS), piece([0, 11, 12, 2], *TASKS)]).result()
    assert sorted(map(str, device.copies_back)) == ["torch.float16", "torch.float32"]


def test_the_result_is_the_one_wait(bge_m3: Path) -> None:
    device = LateDevice()
    device.stop_time()
    runner = runner_of(bge_m3, device)
    first, second = runner.launch(mixed_step()), runner.launch(mixed_step())
    assert device.num_done == 0
    first.result()
    done = device.num_done
    assert done > 0
    second.result()
    assert device.num_done > done


def test_staged_buffers_are_pinned_where_the_device_is_not_the_cpu() -> None:
    assert is_pinned(MetaDevice().host_buffer(4, torch.int64)[:2])
    assert not is_pinned(CpuDevice().host_buffer(4, torch.int64))


def test_an_upload_leaves_the_callers_memory_as_it_was() -> None:
    host = torch.arange(4)
    assert async_tensor_h2d(host, torch.device("meta")).is_meta
    assert not is_pinned(host)
    assert async_tensor_h2d(host, torch.device("cpu")) is host


def test_warm_up_is_a_step_like_any_other(bge_m3: Path) -> None:
    device = CountingDevice()
    warm_up(runner_of(bge_m3, device), TASKS, step_tokens=32, max_length=16)
    assert device.num_copies_up == len(device.copies_back) == len(TASKS)


def test_a_value_that_is_not_finite_is_the_error_of_its_own_sequence(bge_m3: Path) -> None:
    """In a step of mixed tasks and widths; the others' answers are those of a step without it, bit for bit."""
    runner = runner_of(bge_m3, CpuDevice())
    good = mixed_step()
    bad = [piece([MARKED, 2], "embed"), piece([0, 20, MARKED, 2], *TASKS), piece([0, MARKED], "token_embed")]
    pieces = sorted([*good, *bad], key=batch_order)
    expected = dict(zip(map(id, pieces), runner.launch(pieces).result(), strict=True))

    def hook(_: torch.nn.Module, arguments: tuple[PackedBatch], hidden_TH: torch.Tensor) -> torch.Tensor:
        marked = arguments[0].input_ids_T == MARKED
        return torch.where(marked[:, None], torch.nan, hidden_TH)

    runner.model.backbone.register_forward_hook(hook)
    results = dict(zip(map(id, pieces), runner.launch(pieces).result(), strict=True))
    for each in bad:
        assert isinstance(results[id(each)], NonFiniteError)
    for each in good:
        got, right = results[id(each)], expected[id(each)]
        assert isinstance(got, dict)
        assert isinstance(right, dict)
        assert set(got) == set(each.sequence.params)
        for task, value in got.items():
            np.testing.assert_equal(getattr(value, "values", value), getattr(right[task], "values", right[task]))

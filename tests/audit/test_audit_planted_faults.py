"""One planted fault of each kind in a pooler: the audit names its line, its kind and the operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch

from cenote.audit import KINDS, Finding, Report, audit_pooler
from cenote.pooling.metadata import PoolingMetadata
from cenote.transfer import async_tensor_h2d

Fault = Callable[[torch.Tensor, PoolingMetadata], object]
FAULTS: dict[str, tuple[Fault, str, str]] = {}
"""Name -> the fault, its kind, and a part of the operation's name. The faulty line is marked with `# <-`."""


def fault(kind: str, operation: str) -> Callable[[Fault], Fault]:
    def note(function: Fault) -> Fault:
        FAULTS[function.__name__] = (function, kind, operation)
        return function

    return note


@fault("reads_value", "Tensor.item")
def item(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    first = metadata.get_pooling_cursor().first_token_indices_gpu
    start = first[0].item()  # <-
    return rows[int(start) :]


@fault("reads_value", "Tensor.__int__")
def integer(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[: int(metadata.get_pooling_cursor().last_token_indices_gpu[-1])]  # <-


@fault("reads_value", "Tensor.__getitem__")
def slice_by_device_value(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    cursor = metadata.get_pooling_cursor()
    return rows[cursor.first_token_indices_gpu[0] :]  # <-


@fault("reads_value", "Tensor.__bool__")
def truth(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    if (rows != rows).any():  # <-
        return rows.zero_()
    return rows


@fault("reads_value", "equal")
def equal(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows if torch.equal(rows, rows + 0.0) else rows * 2  # <-


@fault("copy_to_host", "Tensor.tolist")
def tolist(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    cursor = metadata.get_pooling_cursor()
    starts = cursor.first_token_indices_gpu.tolist()  # <-
    return [rows[start] for start in starts]


@fault("copy_to_host", "Tensor.cpu")
def cpu(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows.sum(dim=0).cpu()  # <-


@fault("copy_to_host", "Tensor.to")
def to_host_without_blocking(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows.to("cpu", non_blocking=True)  # <-


@fault("copy_to_host", "Tensor.copy_")
def copy_into_host(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    target = torch.empty(rows.shape, dtype=rows.dtype)
    return target.copy_(rows)  # <-


@fault("copy_to_host", "Tensor.__format__")
def printing(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    message = f"the first value is {rows[0, 0]}"  # <-
    return rows if message else None


@fault("unknown_size", "nonzero")
def nonzero(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows.index_select(0, rows[:, 0].nonzero()[:, 0])  # <-


@fault("unknown_size", "where")
def where_with_one_argument(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return torch.where(rows[:, 0] > 0)[0]  # <-


@fault("unknown_size", "Tensor.__getitem__")
def boolean_mask(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[rows[:, 0] > 0]  # <-


@fault("unknown_size", "masked_select")
def masked_select(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return torch.masked_select(rows, rows > 0)  # <-


@fault("unknown_size", "Tensor.__setitem__")
def assignment_through_a_mask(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    rows[rows < 0] = 0.0  # <-
    return rows


@fault("unknown_size", "unique")
def unique(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return torch.unique(rows)  # <-


@fault("unknown_size", "repeat_interleave")
def repeat_without_output_size(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    cursor = metadata.get_pooling_cursor()
    lengths = cursor.last_token_indices_gpu - cursor.first_token_indices_gpu
    return torch.repeat_interleave(lengths, lengths)  # <-


@fault("blocking_copy", "Tensor.to")
def blocking_copy(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    lengths = metadata.prompt_lens.to(rows.device)  # <-
    return rows[: len(lengths)] / lengths[:, None]


@fault("blocking_copy", "Tensor.to")
def blocking_copy_from_pinned_memory(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return metadata.prompt_lens.pin_memory().to(rows.device)  # <-


@fault("pageable_copy", "Tensor.to")
def pageable_copy(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return metadata.prompt_lens.to(rows.device, non_blocking=True)  # <-


@fault("pageable_copy", "Tensor.copy_")
def pageable_copy_in_place(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    target = torch.empty_like(metadata.prompt_lens, device=rows.device)
    return target.copy_(metadata.prompt_lens, non_blocking=True)  # <-


@fault("pageable_copy", "Tensor.to")
def strided_copy_from_pinned_memory(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    host = torch.zeros(8, dtype=torch.int64, pin_memory=True)
    return host[::2].to(rows.device, non_blocking=True)  # <-


@fault("host_index", "Tensor.__getitem__")
def list_as_index(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[:, [0, 1]]  # <-


@fault("host_index", "Tensor.__getitem__")
def array_as_index(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[np.array([0, 0])]  # <-


@fault("host_index", "Tensor.__getitem__")
def host_tensor_as_index(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[metadata.prompt_lens - 1]  # <-


@fault("host_index", "Tensor.__setitem__")
def assignment_by_a_list(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    rows[[0, 0]] = 0.0  # <-
    return rows


@fault("host_tensor", "where")
def host_scalar_in_where(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return torch.where(rows > 0, rows, torch.tensor(0.0, dtype=rows.dtype))  # <-


@fault("constructor", "tensor")
def constructor(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    index = torch.tensor([0, 0], device=rows.device)  # <-
    return rows.index_select(0, index)


@fault("constructor", "as_tensor")
def as_tensor(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[0] * torch.as_tensor([2.0], device=rows.device)  # <-


@fault("constructor", "Tensor.new_tensor")
def new_tensor(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows[0] * rows.new_tensor([2.0])  # <-


@fault("unverified", "segment_reduce")
def unknown_operation(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    lengths = async_tensor_h2d(metadata.prompt_lens, rows.device)
    return torch.segment_reduce(rows.float(), "sum", lengths=lengths, unsafe=True)  # <-


@fault("unverified", "linalg.inv")
def checks_on_the_device(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    square = torch.zeros((2, 2), device=rows.device)
    return torch.linalg.inv(square)  # <-


@fault("stopped", "TypeError")
def to_numpy(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    return rows.numpy()  # <-


def marked_line(function: Fault) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if "# <-" in line)


def audited(function: Fault) -> Report:
    return audit_pooler(lambda: function, hidden_size=8)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_on_its_line(name: str) -> None:
    function, kind, operation = FAULTS[name]
    findings = audited(function).findings
    assert findings, "nothing was found"
    for finding in findings:
        assert (finding.place.file, finding.place.line) == (__file__, marked_line(function)), finding
        assert finding.place.function == name
        assert finding.reason
        assert finding.cure
    assert (kind, True) in [(finding.kind, operation in finding.operation) for finding in findings], findings


def test_there_is_a_planted_fault_of_every_kind() -> None:
    assert {kind for _, kind, _ in FAULTS.values()} == set(KINDS)


def clean(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    """Do the same work as the faults above without waiting."""
    cursor = metadata.get_pooling_cursor()
    lengths = cursor.num_scheduled_tokens_cpu.tolist()
    index = async_tensor_h2d(np.cumsum(lengths) - 1, rows.device)
    pinned = metadata.prompt_lens.pin_memory().to(rows.device, non_blocking=True)
    repeats = cursor.last_token_indices_gpu - cursor.first_token_indices_gpu
    torch.repeat_interleave(repeats, repeats, output_size=sum(lengths) - len(lengths))
    rows[0] = 1.0
    halves = rows[index] * torch.tensor(0.5) + rows.index_select(0, index)
    chosen = torch.where(halves > 0, halves, 0.0)
    chosen = chosen.masked_fill(chosen != chosen, 0.0)
    return torch.split(chosen / pinned[:, None], 1)


def test_a_clean_step_gives_no_finding() -> None:
    report = audited(clean)
    assert report.is_clean, report.as_text()
    assert len(report.steps) > 5


def two_faults(rows: torch.Tensor, metadata: PoolingMetadata) -> object:
    if rows.sum().item() > 0:
        return rows.max().item()
    return rows[[0]]


def test_both_arms_of_a_branch_are_seen() -> None:
    kinds = sorted((finding.kind, finding.place.line) for finding in audited(two_faults).findings)
    _, first = inspect.getsourcelines(two_faults)
    assert kinds == [("host_index", first + 3), ("reads_value", first + 1), ("reads_value", first + 2)]


def test_a_fault_that_comes_up_again_is_told_once() -> None:
    function, _, _ = FAULTS["item"]
    findings: tuple[Finding, ...] = audited(function).findings
    assert len(findings) == len(set(findings)) == 1

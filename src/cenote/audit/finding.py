"""What the audit reports: one place in the code where a GPU and the CPU would wait for each other, or might."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Kind = Literal[
    "reads_value",
    "unknown_size",
    "copy_to_host",
    "blocking_copy",
    "pageable_copy",
    "host_index",
    "host_tensor",
    "constructor",
    "unverified",
    "stopped",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

REASONS: dict[Kind, str] = {
    "reads_value": "the host asks for a value, so it waits until the device has computed it",
    "unknown_size": "the size of the result depends on values, so the host waits to learn it",
    "copy_to_host": "a copy to the host waits for the device; a step has one of its own, at its end",
    "blocking_copy": "a copy to the device without non_blocking=True waits until it is done",
    "pageable_copy": "a copy from memory that is not pinned blocks, even with non_blocking=True",
    "host_index": "an index that lies on the host, as a Python list does, is copied up with a blocking copy",
    "host_tensor": "a host tensor among device tensors is copied up with a blocking copy",
    "constructor": "values from Python go up with a blocking copy",
    "unverified": "nobody has noted that this operation is free of waits; it may be",
    "stopped": "the step could not go on without values, and what comes after this line was not seen",
}
CURES: dict[Kind, str] = {
    "reads_value": "decide on the host: keep the lengths and flags that you need as Python or numpy values",
    "unknown_size": "find the positions on the host, copy them up with async_tensor_h2d, and use index_select",
    "copy_to_host": "return the tensor; the runner copies it back beside the next step",
    "blocking_copy": "use cenote.transfer.async_tensor_h2d",
    "pageable_copy": "use cenote.transfer.async_tensor_h2d, which pins first",
    "host_index": "copy the index up with async_tensor_h2d, or use a slice",
    "host_tensor": "copy it up with async_tensor_h2d, or make it on the device with torch.full or torch.arange",
    "constructor": "use async_tensor_h2d, or torch.full, torch.zeros or torch.arange, which run on the device",
    "unverified": "run it on a GPU under torch.cuda.set_sync_debug_mode('error') and add it to audit/clean_ops.toml",
    "stopped": "see the message; a GPU would raise too, or wait",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A line of code outside PyTorch and the audit."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One operation at one place; `operation` is the caller's name for it, `detail` what is special about this one."""

    kind: Kind
    operation: str
    place: Place
    detail: str = ""

    @property
    def reason(self) -> str:
        return REASONS[self.kind]

    @property
    def cure(self) -> str:
        return CURES[self.kind]

    def as_dict(self) -> dict[str, Any]:
        """Return everything a reader needs, for JSON."""
        return {
            **asdict(self.place),
            "kind": self.kind,
            "operation": self.operation,
            "detail": self.detail,
            "reason": self.reason,
            "cure": self.cure,
        }

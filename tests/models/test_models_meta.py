"""A forward on `meta`, standing in for a GPU: nothing in it makes host and device wait for each other."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tiny_models import tiny_spec
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cenote.models.batch import pack
from cenote.models.load import load_model
from tiny import FAMILIES, CheckpointFactory

META = torch.device("meta")
UPLOAD = "async_tensor_h2d"


class Crossings(TorchDispatchMode):
    """Collect every operation that reads one device and writes another, or reads a value back.

    A host scalar (no dimensions) among device operands is passed by value and no copy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.uploads = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        written = {leaf.device.type for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)}
        on_device = any(tensor.is_meta for tensor in read)
        from_host = any(tensor.device.type == "cpu" and (tensor.ndim or not on_device) for tensor in read)
        if (on_device and "cpu" in written) or (from_host and "meta" in written):
            frames = traceback.extract_stack()
            if any(frame.name == UPLOAD for frame in frames):
                self.uploads += 1
            else:
                self.found.append(f"{func} at {frames[-2].filename}:{frames[-2].lineno}")
        return output


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_family_waits(checkpoint: CheckpointFactory, family: str, dtype: torch.dtype) -> None:
    loaded = load_model(tiny_spec(checkpoint(family)), dtype=dtype, device=META)
    lengths = (12, 3, 3, 7)
    types = [[0] * length for length in lengths] if loaded.uses_token_types else None
    batch = pack(
        [[1] * length for length in lengths],
        device=META,
        position_offset=loaded.position_offset,
        token_type_ids=types,
    )
    crossings = Crossings()
    with torch.inference_mode(), crossings:
        hidden = loaded.backbone(batch)
    assert crossings.found == []
    assert crossings.uploads == (4 if family == "deberta-v2" else 0)
    assert hidden.shape == (25, loaded.hidden_size)
    assert hidden.is_meta


def test_fewer_keys_go_up_once_for_all_layers(checkpoint: CheckpointFactory) -> None:
    loaded = load_model(tiny_spec(checkpoint("bert")), dtype=torch.bfloat16, device=META)
    batch = pack([[1] * 8, [1] * 5], device=META, num_keys=[6, 5])
    crossings = Crossings()
    with torch.inference_mode(), crossings:
        loaded.backbone(batch)
    assert crossings.found == []
    assert crossings.uploads == 1


def test_the_watch_sees_what_it_should() -> None:
    crossings = Crossings()
    with crossings:
        torch.zeros(3).to(META)
        torch.zeros(3, device=META) / torch.tensor(2.0)
    assert len(crossings.found) == 1

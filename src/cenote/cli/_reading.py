"""The first steps of opening a checkpoint: what it says and what is decided, before a weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote.config import EngineOptions

if TYPE_CHECKING:
    from cenote.checkpoint.decide import Decisions, DeviceFacts
    from cenote.checkpoint.spec import ModelSpec
    from cenote.models.load import LoadedModel


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A checkpoint that was read and decided about."""

    spec: ModelSpec
    facts: DeviceFacts
    decisions: Decisions

    def load(self) -> LoadedModel:
        """Load the weights onto the device that was decided. Raises `CheckpointError` where they do not fit."""
        import torch

        from cenote.models.load import load_model
        from cenote.runtime.device import open_device

        device = open_device(self.facts).torch_device
        return load_model(self.spec, dtype=getattr(torch, self.decisions.loaded_dtype), device=device)


def read(model: str, options: EngineOptions) -> Reading:
    """Read the settings of `model` and decide; raises `CheckpointError` and `OptionError` as a start would."""
    from cenote.checkpoint import read_model
    from cenote.checkpoint.decide import decide
    from cenote.runtime.device import device_facts

    spec = read_model(model, options)
    facts = device_facts(options.device)
    return Reading(spec=spec, facts=facts, decisions=decide(spec, options, facts))

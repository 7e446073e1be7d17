"""The hot layers of a model on a CPU rewritten after load: their weights prepacked, or turned into int8.

The checkpoint's numbers are compared with transformers before, on its own weights: `verify_model` comes first. What the
rewriting changes is measured here, on made-up text.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from cenote.checkpoint.decide import Decision
from cenote.errors import CheckpointError, OptionError
from cenote.models.batch import PackedBatch, pack
from cenote.models.classes import T5_TYPES
from cenote.models.fused import FusedBackbone
from cenote.models.int8 import Int8Linear, check_supported, weight_steps
from cenote.models.load import LoadedModel
from cenote.models.prepacked import PrepackedLinear, can_prepack

_PROBE_LENGTHS = (12, 40)
_MIN_FEATURES = 64
"""A narrower layer gains nothing."""
_PREPACKED_TOLERANCE = 1e-4
"""1 - cosine of a token's hidden state; another order of sums stays far below, a wrong product far above."""


def rewrite(loaded: LoadedModel, dtype: str) -> Decision | None:
    """Rewrite the layers of a model for `dtype`, in place, and return what was done; `None` where nothing is to gain.

    Raises `OptionError` where `dtype` is int8 and that cannot be done, `CheckpointError` where the prepacked layers
    give other numbers.
    """
    is_t5 = loaded.module.config.model_type in T5_TYPES  # asks its layers for their weights
    if dtype == "int8":
        if is_t5:
            raise OptionError(
                "dtype int8 is not supported for T5, which asks its layers for their weights; use float32"
            )
        check_supported()
        return _quantize(loaded)
    if not is_t5 and can_prepack(loaded.dtype, loaded.device):
        return _prepack(loaded)
    return None


def _quantize(loaded: LoadedModel) -> Decision:
    count, cosines = _replace_linears(loaded, Int8Linear)
    bits = "8-bit weights" if weight_steps() == 127 else "7-bit weights, since the CPU has no VNNI"
    reason = f"{count} layers, {bits}; mean cosine to float32 of a token {cosines.mean():.4f} on made-up text"
    return Decision(what="int8", value="oneDNN", reason=reason)


def _prepack(loaded: LoadedModel) -> Decision:
    count, cosines = _replace_linears(loaded, PrepackedLinear)
    if not 1 - cosines.min() <= _PREPACKED_TOLERANCE:
        raise CheckpointError(
            f"prepacked weights give other numbers than plain ones (cosine {cosines.min():.6f}), so the model is not "
            "served; please report the processor and the version of torch as a bug"
        )
    return Decision(what="weights", value="prepacked", reason=f"{count} layers in the order in which oneDNN reads them")


def _replace_linears(loaded: LoadedModel, make: Callable[[nn.Linear], nn.Module]) -> tuple[int, torch.Tensor]:
    """Put what `make` returns in the place of every large linear layer of the backbone's blocks.

    Embeddings, norms, poolers and heads stay as they are. Return how many layers there are, and the cosine of each
    token's hidden state to what it was.
    """
    batch = _probe(loaded)
    with torch.inference_mode():
        before = loaded.backbone(batch).clone()
        if isinstance(loaded.backbone, FusedBackbone):
            loaded.backbone.drop_plain_layers()
        lists = [module for module in loaded.backbone.modules() if isinstance(module, nn.ModuleList)]
        count = sum(_replace_in(layer, make) for layers in lists for layer in layers)
        after = loaded.backbone(batch)
    return count, F.cosine_similarity(before.float(), after.float(), dim=1)


def _replace_in(module: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> int:
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and min(child.in_features, child.out_features) >= _MIN_FEATURES:
                setattr(parent, name, make(child))
                count += 1
    return count


def _probe(loaded: LoadedModel) -> PackedBatch:
    types = [[0] * length for length in _PROBE_LENGTHS] if loaded.uses_token_types else None
    return pack(
        [list(range(5, 5 + length)) for length in _PROBE_LENGTHS],
        device=loaded.device,
        position_offset=loaded.position_offset,
        token_type_ids=types,
    )

"""Made-up results for operations that `meta` cannot run, so that a step goes on to its next fault."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from cenote.audit.finding import Place
from cenote.audit.judge import op_name


class Answers:
    """Invents results. A value is 1, then 0, then 1 ... at each place: both arms of a branch run, and loops end."""

    def __init__(self) -> None:
        self._asked: Counter[Place] = Counter()

    def invent(self, func: Any, call: tuple[Any, dict[str, Any]], place: Place) -> Any:
        """Return something of the right type for `func`, or `NotImplemented` where `meta` must try by itself."""
        args, kwargs = call
        match op_name(func):
            case "_local_scalar_dense.default":
                return self._value(place, args[0].dtype)
            case "equal.default" | "allclose.default" | "is_nonzero.default":
                return bool(self._value(place, torch.bool))
            case "_to_copy.default":
                return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
            case "copy_.default":
                return args[0].zero_()
            case "nonzero.default":
                return args[0].new_empty((1, args[0].dim()), dtype=torch.int64)
            case "masked_select.default":
                return args[0].new_empty(1)
            case "index.Tensor":
                return func(args[0], _as_positions(args[1]))
            case "repeat_interleave.Tensor":
                return func(*args, output_size=args[0].numel())
        return NotImplemented

    def _value(self, place: Place, dtype: torch.dtype) -> bool | int | float:
        self._asked[place] += 1
        value = torch.tensor(self._asked[place] % 2, dtype=dtype).item()
        assert isinstance(value, bool | int | float)
        return value


def _as_positions(indices: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Put one position for each dimension of a boolean mask in its place."""
    positions: list[torch.Tensor | None] = []
    for each in indices:
        if each is not None and each.dtype in (torch.bool, torch.uint8):
            positions += [each.new_empty(1, dtype=torch.int64)] * each.dim()
        else:
            positions.append(each)
    return positions

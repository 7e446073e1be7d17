"""Made-up texts, to warm a model up and to measure it: token ids of 0, since only their number matters."""

from __future__ import annotations

import numpy as np

from cenote.params import PoolingParams, Task
from cenote.runtime.request import Piece, Sequence
from cenote.runtime.runner import ModelRunner, with_updates


def made_up_texts(runner: ModelRunner, task: Task, *, length: int, number: int = 1) -> list[Piece]:
    """Return `number` texts of `length` tokens for `task`, to be launched."""
    params = with_updates({task: PoolingParams(task=task)}, runner.pooler)
    sequence = Sequence(token_ids=np.zeros(length, dtype=np.int64), params=params, num_keys=length)
    return [Piece(sequence=sequence, stop=length)] * number

"""Short texts of nearly one length, padded to the longest of them, so that one call attends within all.

A call takes nearly as long for one short text as for several, and each holds the interpreter's lock a few times.

Shape suffixes: T packed tokens, N texts, L rows of each with its padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cenote.models.batch import Run

MAX_LENGTH = 40
"""Of longer texts, a call for each takes no longer."""
_MAX_PADDED_SHARE = 1.3
"""Most rows with padding for each row without."""


@dataclass(frozen=True, kw_only=True)
class PaddedRun:
    """Some `rows` of the pack as `num_seqs` texts of `length` rows each."""

    rows: slice
    num_seqs: int
    length: int
    rows_NL: torch.Tensor
    """for each padded row, flat, the row of the pack; padding repeats its text's first row"""
    mask: torch.Tensor
    """`[N, 1, 1, L]`: what is added to the scores, minus infinity for padding"""
    kept_T: torch.Tensor
    """for each of `rows`, its padded row"""


def join_short_runs(runs: Sequence[Run], dtype: torch.dtype) -> list[Run | PaddedRun]:
    """Pad neighbouring short runs to one length where that adds few rows. The others stay as they are."""
    return [each[0] if len(each) == 1 else _pad(each, dtype) for each in _neighbours(runs)]


def _neighbours(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield the runs that are padded together, and the others alone."""
    together: list[Run] = []
    for run in runs:
        if together and not _fits([*together, run]):
            yield together
            together = []
        together.append(run)
    if together:
        yield together


def _fits(runs: Sequence[Run]) -> bool:
    longest = max(run.length for run in runs)
    padded = longest * sum(run.num_seqs for run in runs)
    is_plain = all(run.context is None and run.num_keys == run.length for run in runs)
    return is_plain and longest <= MAX_LENGTH and padded <= _MAX_PADDED_SHARE * sum(run.num_rows for run in runs)


def _pad(runs: Sequence[Run], dtype: torch.dtype) -> PaddedRun:
    lengths_np = np.repeat([run.length for run in runs], [run.num_seqs for run in runs])[:, None]
    longest = int(lengths_np.max())
    starts_np = runs[0].start + np.cumsum(lengths_np)[:, None] - lengths_np
    places_np = np.arange(longest)
    is_text_np = places_np < lengths_np
    mask = torch.zeros(len(lengths_np), 1, 1, longest, dtype=dtype)
    mask.masked_fill_(~torch.from_numpy(is_text_np)[:, None, None], -torch.inf)
    return PaddedRun(
        rows=slice(runs[0].start, runs[-1].rows.stop),
        num_seqs=len(lengths_np),
        length=longest,
        rows_NL=torch.from_numpy(np.where(is_text_np, starts_np + places_np, starts_np).ravel()),
        mask=mask,
        kept_T=torch.from_numpy(np.flatnonzero(is_text_np)),
    )

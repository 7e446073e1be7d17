"""Texts of one step that choose unlike numbers of columns: each gets what it gets alone."""

from __future__ import annotations

import torch
from torch import nn

from cenote.params import PoolingParams
from cenote.pooling.heads.classifier import LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.metadata import PoolingMetadata


def test_unlike_widths_are_finished_each_by_its_own_rule() -> None:
    head = TokenClassifierPoolerHead(nn.Identity(), LabelOptions("auto"))
    rows = [torch.randn(3, 2), None, torch.randn(2, 1), torch.randn(0, 2), torch.randn(4, 1)]
    params = [PoolingParams(task="token_classify", use_activation=each) for each in (None, None, None, None, False)]
    metadata = PoolingMetadata(
        prompt_lens=torch.zeros(5, dtype=torch.int64),
        params_by_task=[{"token_classify": each} for each in params],
        token_ids_np=[None] * 5,
        pooling_states=[],
        task="token_classify",
    )
    first, unfinished, third, empty, raw = head(rows, metadata)
    torch.testing.assert_close(first, rows[0].softmax(-1))  # type: ignore[union-attr]
    assert unfinished is None
    torch.testing.assert_close(third, rows[2].sigmoid())  # type: ignore[union-attr]
    assert empty.shape == (0, 2)
    assert torch.equal(raw, rows[4])  # type: ignore[arg-type]

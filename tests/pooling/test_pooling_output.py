"""The flat output buffer: what is packed is what the host table finds again."""

from __future__ import annotations

import numpy as np
import torch

from cenote.pooling.output import PooledGroup, pack_outputs


def test_blocks_lists_and_dtypes_come_back_as_they_went() -> None:
    block = torch.arange(6.0).reshape(2, 3)
    rows = [torch.arange(8.0).reshape(4, 2), None, torch.empty(0, 5), torch.arange(4.0)]
    half = [torch.ones(1, 2, dtype=torch.float16)]
    flat = pack_outputs(
        [
            PooledGroup("embed", [0, 2], block),
            PooledGroup("token_embed", range(4), rows),
            PooledGroup("classify", [1], half),
        ]
    )
    assert {dtype: tuple(buffer.shape) for dtype, buffer in flat.buffers.items()} == {
        torch.float32: (18,),
        torch.float16: (2,),
    }
    host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
    found = {(entry.sequence, entry.task): entry.view(host) for entry in flat.entries}
    assert set(found) == {
        (0, "embed"),
        (2, "embed"),
        (0, "token_embed"),
        (2, "token_embed"),
        (3, "token_embed"),
        (1, "classify"),
    }
    np.testing.assert_array_equal(found[2, "embed"], [3, 4, 5])
    np.testing.assert_array_equal(found[0, "token_embed"], rows[0])
    assert found[2, "token_embed"].shape == (0, 5)
    np.testing.assert_array_equal(found[3, "token_embed"], [0, 1, 2, 3])
    np.testing.assert_array_equal(found[1, "classify"], half[0])


def test_the_buffer_is_its_own_memory() -> None:
    rows = torch.ones(2, 3)
    flat = pack_outputs([PooledGroup("embed", [0, 1], rows)])
    rows.fill_(torch.nan)
    assert flat.buffers[torch.float32].tolist() == [1.0] * 6


def test_nothing_pooled_is_no_buffer() -> None:
    assert pack_outputs([PooledGroup("token_embed", [0], [None])]).buffers == {}

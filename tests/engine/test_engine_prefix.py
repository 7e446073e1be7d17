"""A prefix that texts of one step share is computed once, and nothing of it shows in the answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote import Engine
from cenote.params import PoolingParams
from cenote.runtime.prefix import MIN_SHARED_TOKENS, share_prefixes
from cenote.runtime.request import Piece, Sequence
from tiny import CheckpointFactory
from tolerances import assert_close

CAUSAL = ["qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text"]


def some_ids(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(7, 190, length).tolist()


FIRST, SECOND = some_ids(20, 1), some_ids(30, 2)
TEXTS = [
    *[FIRST + some_ids(n, seed) for seed, n in enumerate((5, 9, 9, 14, 1))],
    some_ids(25, 77),
    *[SECOND + some_ids(n, 50 + seed) for seed, n in enumerate((3, 3, 8))],
    FIRST + SECOND[:4],
]


@pytest.mark.parametrize("family", CAUSAL)
def test_sharing_equals_computing_again(checkpoint: CheckpointFactory, family: str) -> None:
    with Engine(checkpoint(family), pooling="last", max_batch_tokens=1000) as engine:
        alone = np.concatenate([engine.embed([text]) for text in TEXTS])
        runner = engine._core.lane.runner
        before = runner.num_tokens
        assert_close(engine.embed(TEXTS), alone, "chunked")
        assert runner.num_tokens - before == sum(map(len, TEXTS)) - 5 * len(FIRST) - 2 * len(SECOND)
        assert_close(engine.embed(TEXTS[::-1])[::-1], alone, "chunked")


@pytest.mark.parametrize(("family", "pooling"), [("qwen3", "mean"), ("qwen3_bidirectional", "last"), ("bert", "cls")])
def test_what_needs_all_rows_shares_nothing(checkpoint: CheckpointFactory, family: str, pooling: str) -> None:
    with Engine(checkpoint(family), pooling=pooling, max_batch_tokens=1000) as engine:
        runner = engine._core.lane.runner
        before = runner.num_tokens
        engine.embed(TEXTS)
        assert runner.num_tokens - before == sum(map(len, TEXTS))


def test_nothing_is_kept_from_one_step_to_the_next(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("qwen3"), pooling="last") as engine:
        runner = engine._core.lane.runner
        counts = []
        for _ in range(3):
            before = runner.num_tokens
            engine.embed([TEXTS[0]])
            counts.append(runner.num_tokens - before)
        assert counts == [len(TEXTS[0])] * 3


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=12))
def test_cut_pieces_begin_as_their_leader(shapes: list[tuple[int, int, int]]) -> None:
    """Every cut piece repeats its leader's first tokens, keeps a row of its own, and its leader is whole."""
    params = {"embed": PoolingParams(task="embed")}
    texts = [
        np.array(some_ids(40, kind)[:shared] + some_ids(own, i + 100)) for i, (kind, shared, own) in enumerate(shapes)
    ]
    pieces = [
        Piece(sequence=Sequence(token_ids=ids, params=params, num_keys=len(ids), shares_prefix=True), stop=len(ids))
        for ids in texts
    ]
    for piece in share_prefixes(pieces):
        assert 0 <= piece.start < piece.stop == len(piece.sequence)
        if piece.leader is None:
            assert piece.start == 0
            continue
        leader = share_prefixes(pieces)[piece.leader]
        assert piece.start >= MIN_SHARED_TOKENS
        assert (leader.start, leader.leader) == (0, None)
        assert np.array_equal(leader.sequence.token_ids[: piece.start], piece.sequence.token_ids[: piece.start])

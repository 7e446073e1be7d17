"""What a caller may say about limits: which end of a text is cut, at how many tokens, or that nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from cenote import Engine, InputError, TooLongError
from tiny import HIDDEN_SIZE, CheckpointFactory, add_sentence_transformers_files
from tolerances import assert_close

LONG_TEXT = "the cat and a dog on the stone by the river " * 20
LIMIT = 64


@pytest.fixture(scope="module")
def engine(checkpoint: CheckpointFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = Path(copytree(checkpoint("bert"), tmp_path_factory.mktemp("limits") / "dense"))
    with Engine(add_sentence_transformers_files(folder, normalize=True), threads=1) as opened:
        yield opened


@pytest.mark.parametrize("size", [3, 17, LIMIT, None, 1000])
@pytest.mark.parametrize("side", ["left", "right", None])
def test_the_ids_that_stay(engine: Engine, side: str | None, size: int | None) -> None:
    first, *content, last = engine.tokenize(LONG_TEXT)[0]
    room = min(size or LIMIT, LIMIT) - 2
    kept = content[-room:] if side == "left" else content[:room]
    found = engine.embed(["the cat", LONG_TEXT], truncation_side=side, max_tokens=size)  # type: ignore[arg-type]
    assert_close(found[1:], engine.embed([first, *kept, last]))
    assert found.truncated[1]
    assert found.num_tokens[1] == room + 2


def test_a_lower_limit_may_refuse(engine: Engine) -> None:
    with pytest.raises(TooLongError, match=r"texts\[1\]"):
        engine.embed(["a", "the cat and a dog"], max_tokens=4, truncate=False)


@pytest.mark.parametrize("fields", [{"max_tokens": 0}, {"max_tokens": True}, {"truncation_side": "top"}])
def test_wrong_limits_are_refused(engine: Engine, fields: dict[str, object]) -> None:
    with pytest.raises(InputError):
        engine.embed("a", **fields)  # type: ignore[arg-type]


def test_rerank_may_refuse_what_is_too_long(engine: Engine, checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification", num_labels=1)
    with Engine(folder, threads=1) as cross_encoder:
        for each in (engine, cross_encoder):
            short = each.rerank("water", ["the cat", "a dog"], truncate=False)
            assert {one.index for one in short} == {0, 1}
            assert not any(one.truncated for one in short)
            with pytest.raises(TooLongError, match=r"documents\[1\]"):
                each.rerank("water", ["the cat", LONG_TEXT], truncate=False)
            cut = each.rerank("water", ["the cat", LONG_TEXT], truncate=False, max_tokens_per_doc=8)
            assert {one.index for one in cut if one.truncated} == {1}


def test_multi_vectors_are_cut_then_normalised(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = Path(copytree(checkpoint("xlm-roberta"), tmp_path / "m3"))
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")
    with Engine(folder, threads=1, any_dimensions=True) as m3:
        whole = m3.encode(["the cat"])
        cut = m3.encode(["the cat"], multi_vector_dimensions=8)
        assert_close(cut.dense, whole.dense)
        first = whole.multi_vector[0][:, :8]
        assert_close(cut.multi_vector[0], first / np.linalg.norm(first, axis=1, keepdims=True))

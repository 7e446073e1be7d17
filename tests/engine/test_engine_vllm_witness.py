"""The same checkpoints and token ids in Cenote and in vLLM, whose answers were kept; docs/vllm.md says how and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cenote import Engine, PoolingParams
from cenote.outputs import SparseVector
from tiny import tiny_checkpoint
from tolerances import assert_close
from vllm_asks import Ask
from vllm_cases import CASES
from vllm_checkpoints import fingerprint

ANSWERS = Path(__file__).resolve().parent.parent / "data" / "vllm"
UNK_ID = 3
Answer = Mapping[str, Any]
Array = npt.NDArray[np.floating[Any]]


def read_answers(case: str) -> Answer:
    return json.loads((ANSWERS / f"{case}.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(case: str, tmp_path: Path) -> Iterator[Engine]:
    """The checkpoint that vLLM had, written again and opened by Cenote."""
    folder = CASES[case].build(tmp_path / case)
    mine, theirs = fingerprint(folder), read_answers(case)["checkpoint"]["fingerprint"]
    assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-4), (
        "this is not the checkpoint that vLLM was asked: its seeds, sizes or names have changed since; "
        "ask vLLM again as docs/vllm.md says"
    )
    with Engine(folder, **CASES[case].cenote) as opened:
        yield opened


def test_every_answer_of_vllm(case: str, engine: Engine) -> None:
    kept = read_answers(case)
    for name, ask in CASES[case].asks.items():
        answer = kept if "error" in kept else kept["answers"][name]
        if "error" in answer:
            assert all(map(is_finite, ask_cenote(engine, ask, None)))
            continue
        mine, theirs = ask_cenote(engine, ask, answer.get("token_ids")), answer["outputs"]
        assert len(mine) == len(theirs)
        compared = [same_form(one, other) for one, other in zip(mine, theirs, strict=True)]
        if ask.differs:
            assert any(one.shape != other.shape or np.abs(one - other).max() > 1e-2 for one, other in compared), name
            continue
        for one, other in compared:
            assert_close(one, other, ask.kind)


def ask_cenote(engine: Engine, ask: Ask, read_by_vllm: list[list[int]] | None) -> list[Any]:
    """Ask the same of Cenote; where vLLM was given texts, the tokens are those that it made of them."""
    if ask.method == "score":
        return list(engine.score(ask.query or "", list(ask.texts)))
    params = {key: tuple(each) if isinstance(each, list) else each for key, each in ask.params.items()}
    if ask.method == "max_sim":
        query, *documents = engine.pool(engine.tokenize([ask.query or "", *ask.texts]), ask.task)
        return [np.float64((query @ document.T).max(axis=1).sum()) for document in documents]  # type: ignore[operator, union-attr]
    token_ids = ask.token_ids or read_by_vllm
    assert token_ids is not None
    if read_by_vllm is not None:
        assert token_ids == read_by_vllm
    return engine.pool(token_ids, ask.task, PoolingParams(**params))  # type: ignore[arg-type]


def same_form(mine: Any, theirs: Any) -> tuple[Array, Array]:
    """Return both answers as arrays. Of long vectors the terms that are not zero were kept; `[]` has no columns."""
    if isinstance(theirs, dict):
        return whole(mine.to_dict(), theirs["size"]), whole(theirs["terms"], theirs["size"])
    other = np.asarray(theirs, dtype=np.float64)
    return np.asarray(mine), other.reshape(np.shape(mine)) if not other.size and not np.size(mine) else other


def whole(terms: Mapping[Any, float], size: int) -> Array:
    """Return a sparse vector with its zeros."""
    vector = np.zeros(size)
    vector[[int(index) for index in terms]] = list(terms.values())
    return vector


def is_finite(mine: Any) -> bool:
    return bool(np.isfinite(mine.values if isinstance(mine, SparseVector) else mine).all())


def test_lexical_weights_are_the_largest_of_vllms_for_each_token(tmp_path: Path) -> None:
    """vLLM gives BGE-M3's weight of every token but the marks; the lexical vector has the largest of each token id."""
    answer = read_answers("bge_m3_lexical")["answers"]["default"]
    with Engine(CASES["bge_m3_lexical"].build(tmp_path / "m3")) as engine:
        mine = engine.pool(answer["token_ids"], "embed_sparse")
    for ids, weights, vector in zip(answer["token_ids"], answer["outputs"], mine, strict=True):
        expected: dict[int, float] = {}
        for token, weight in zip(ids[1:-1], weights, strict=True):
            if weight > expected.get(token, 0) and token != UNK_ID:
                expected[token] = weight
        assert isinstance(vector, SparseVector)
        assert vector.indices.tolist() == sorted(expected)
        assert_close(vector.values, [expected[token] for token in sorted(expected)], "raw")


def test_another_seed_is_another_checkpoint(tmp_path: Path) -> None:
    other = fingerprint(tiny_checkpoint("bert", tmp_path, seed=1, num_attention_heads=2))
    assert not np.allclose(other, read_answers("bert_cls")["checkpoint"]["fingerprint"], rtol=1e-2, atol=1e-2)


def test_every_kept_answer_has_its_case() -> None:
    assert {path.stem for path in ANSWERS.glob("*.json")} == set(CASES)

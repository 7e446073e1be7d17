"""Late interaction against sentence-transformers' `MultiVectorEncoder` and the formula of MaxSim."""

from __future__ import annotations

import asyncio
import itertools
import string
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from cenote import AsyncEngine, Engine, InputError
from cenote.params import QueryVectors
from tiny import HIDDEN_SIZE, CheckpointFactory
from tolerances import assert_close

QUERY = "machine learning"
DOCUMENTS = [
    "machine learning is a subset of ai",
    "hello, world!",
    "!?.",
    "",
    "the cat sat . on the mat , twice !",
    "the river was cold " * 20,
]
WORDS = ("the", "river", "was", "cold", "cat", "sat", "on", "mat", "machine", "learning", "is", "a", "hello")
MANY = [" ".join(words) for words in itertools.islice(itertools.product(WORDS, repeat=3), 2000)]
"""All different, since equal ones are computed once."""


def plain_max_sim(query: npt.NDArray[Any], document: npt.NDArray[Any]) -> float:
    """The formula: for each vector of the query its best product, summed."""
    return sum((max((float(q @ d) for d in document), default=0.0) for q in query), 0.0)


@pytest.fixture(scope="module", params=["expansion", "attended", "none", "long"])
def colbert(request: pytest.FixtureRequest, checkpoint: CheckpointFactory, tmp_path_factory: Any) -> Path:
    """F-COLBERT with and without query expansion; `long` queries have more vectors than are compared at once."""
    torch.manual_seed(0)
    expansion = {"strategy": "fixed", "attend": request.param == "attended", "length": 32}
    text: dict[str, Any] = {} if request.param in ("none", "long") else {"query_expansion": expansion}
    folder = tmp_path_factory.mktemp("colbert")
    limit = 300 if request.param == "long" else 64
    bert = checkpoint("bert", max_position_embeddings=limit)
    modules = [
        Transformer(str(bert), query_length=None, document_length=40, max_seq_length=limit, **text),
        Dense(HIDDEN_SIZE, 16, False, torch.nn.Identity(), module_input_name="token_embeddings"),
        MultiVectorMask(list(string.punctuation)),
        Normalize("token_embeddings"),
    ]
    prompts = {"query": "query: ", "document": "passage: "}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save(str(folder), create_model_card=False)
    (folder / "is").write_text(request.param)
    return folder


def query_of(folder: Path) -> str:
    return "the light of the old city " * 15 if (folder / "is").read_text() == "long" else QUERY


def test_equal_to_the_formula_on_the_references_vectors(colbert: Path) -> None:
    """BL-15: the expansion counts as the checkpoint says, punctuation of documents does not, neighbours do not."""
    reference = MultiVectorEncoder(str(colbert), device="cpu")
    query = query_of(colbert)
    query_rows = np.asarray(reference.encode_query([query], batch_size=1)[0])
    documents = [np.asarray(rows) for rows in reference.encode_document(DOCUMENTS, batch_size=1)]
    expected = np.array([plain_max_sim(query_rows, rows) for rows in documents], np.float32)
    with Engine(colbert, max_batch_tokens=320) as engine:
        scores = engine.score(query, DOCUMENTS)
        assert_close(scores / len(query_rows), expected / len(query_rows))
        assert np.abs(scores).max() <= len(query_rows) * (1 + 1e-5)
        alone = np.array([engine.score(query, document)[0] for document in DOCUMENTS])
        assert_close(alone / len(query_rows), expected / len(query_rows))
        ranking = engine.rerank(query, DOCUMENTS, top_n=4)
        assert ranking.kind == "late_interaction"
        assert [entry.index for entry in ranking] == sorted(range(6), key=lambda i: (-scores[i], i))[:4]
        assert {entry.index: entry.truncated for entry in engine.rerank(query, DOCUMENTS)}[5]


@pytest.mark.parametrize("input_type", ["query", "document", None])
def test_encode_gives_the_references_vectors(colbert: Path, input_type: Any) -> None:
    """BL-15: as many vectors as the reference, in values too; a text of no given type is a document's skiplist's."""
    reference = MultiVectorEncoder(str(colbert), device="cpu")
    encode = {"query": reference.encode_query, "document": reference.encode_document, None: reference.encode}
    expected = [np.asarray(encode[input_type]([text])[0]) for text in DOCUMENTS]
    with Engine(colbert) as engine:
        got = engine.encode(DOCUMENTS, outputs=["multi_vector"], input_type=input_type).multi_vector
    assert got is not None
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours, theirs)


def test_several_queries_at_once(colbert: Path) -> None:
    queries = ["machine learning", "the cat", "hello", "river", "a", "the cat"]
    with Engine(colbert) as engine:
        scores = engine.score(queries, DOCUMENTS)
        one_by_one = [engine.score(*pair)[0] for pair in zip(queries, DOCUMENTS, strict=True)]
    assert_close(scores / 32, np.array(one_by_one) / 32)


def test_only_scores_leave_the_device(colbert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query goes up once for each step, however many documents the step holds."""
    with Engine(colbert, max_batch_tokens=640) as engine:
        device = engine._core.lane.runner.device
        copied: list[int] = []
        copy: Callable[[torch.Tensor], Any] = device.copy_to_host

        def counted(buffer: torch.Tensor) -> Any:
            copied.append(buffer.numel())
            return copy(buffer)

        monkeypatch.setattr(type(device), "copy_to_host", lambda _, buffer: counted(buffer))
        engine.score("a query", MANY[:300])
    assert sum(copied[1:]) == 300
    assert len(copied) > 3


def test_bge_m3_leaves_the_first_row_out(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = Path(copytree(checkpoint("xlm-roberta"), tmp_path / "bge"))
    generator = torch.Generator().manual_seed(1)
    torch.save({"weight": torch.zeros(1, HIDDEN_SIZE), "bias": torch.zeros(1)}, folder / "sparse_linear.pt")
    weight = torch.randn(HIDDEN_SIZE, HIDDEN_SIZE, generator=generator)
    torch.save({"weight": weight, "bias": torch.zeros(HIDDEN_SIZE)}, folder / "colbert_linear.pt")
    texts = ["the cat", "who is the king", "water and fire " * 40]
    with Engine(folder) as engine:
        vectors = engine.encode(["the old king", *texts], outputs=["multi_vector"]).multi_vector
        assert vectors is not None
        expected = [plain_max_sim(vectors[0], rows) for rows in vectors[1:]]
        scores = engine.score("the old king", texts)
        assert len(vectors[0]) == engine.embed("the old king").num_tokens[0] - 1
    assert_close(scores / len(vectors[0]), np.array(expected) / len(vectors[0]))


def test_raw_scores_and_instructions(colbert: Path) -> None:
    with Engine(colbert) as engine:
        assert_close(engine.score(QUERY, DOCUMENTS, raw_scores=True), engine.score(QUERY, DOCUMENTS))
        with pytest.raises(InputError, match="scores by late_interaction and reads no instruction"):
            engine.rerank(QUERY, DOCUMENTS, instruction="Find it.")


def test_a_caller_who_leaves_takes_both_requests_along(colbert: Path) -> None:
    async def run() -> None:
        async with AsyncEngine(colbert, max_batch_tokens=64) as engine:
            task = asyncio.create_task(engine.rerank(QUERY, MANY))
            lane = engine._core.lane
            while not any(len(request.sequences) == 2000 for request in lane.waiting):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            steps = lane.num_steps
            assert len(await engine.score(QUERY, DOCUMENTS)) == len(DOCUMENTS)
            assert lane.num_steps - steps < 30, "the documents of the caller who left were still scored"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_query_vectors_are_compared_by_identity() -> None:
    rows = np.ones((2, 3), np.float32)
    assert QueryVectors(rows) != QueryVectors(rows)

"""The real all-MiniLM-L6-v2 reranks real passages, by cosine and by late interaction over its token embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.multi_vector_encoder import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from cenote import Engine
from fetch_models import ensure
from tolerances import assert_close

LINES = (Path(__file__).parent.parent / "data" / "passages.jsonl").read_text(encoding="utf-8").splitlines()
ENTRIES = [json.loads(line) for line in LINES]
PASSAGES = [entry["passage"] for entry in ENTRIES]
QUERIES = [(query, i) for i, entry in enumerate(ENTRIES) for query in entry["queries"]]


@pytest.fixture(scope="module")
def multi_vector_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights with a vector for each token in place of the mean."""
    folder = tmp_path_factory.mktemp("multi-vector")
    modules = [Transformer(str(ensure("all-MiniLM-L6-v2"))), MultiVectorMask([]), Normalize("token_embeddings")]
    MultiVectorEncoder(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return folder


def test_thirty_queries_by_cosine() -> None:
    folder = str(ensure("all-MiniLM-L6-v2"))
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    queries, passages = (
        np.stack([model.encode(text) for text in texts]) for texts in ([q for q, _ in QUERIES], PASSAGES)
    )
    expected = queries @ passages.T
    assert len(QUERIES) == 30
    with Engine(folder, device="cpu") as engine:
        for (query, best), cosines in zip(QUERIES, expected, strict=True):
            ranking = engine.rerank(query, PASSAGES)
            assert ranking.kind == "cosine"
            assert ranking[0].index == best, query
            assert_close([entry.score for entry in sorted(ranking, key=lambda entry: entry.index)], cosines)


def test_thirty_queries_by_late_interaction(multi_vector_folder: Path) -> None:
    model = MultiVectorEncoder(str(multi_vector_folder), device="cpu")
    rows = [np.asarray(model.encode_document([passage])[0]) for passage in PASSAGES]
    found = 0
    with Engine(multi_vector_folder, device="cpu") as engine:
        for query, best in QUERIES:
            ranking = engine.rerank(query, PASSAGES)
            assert ranking.kind == "late_interaction"
            vectors = np.asarray(model.encode_query([query])[0])
            expected = np.array([(vectors @ document.T).max(axis=1).sum() for document in rows])
            scores = np.array([entry.score for entry in sorted(ranking, key=lambda entry: entry.index)])
            assert_close(scores / len(vectors), expected / len(vectors))
            found += ranking[0].index == best
            assert best in [entry.index for entry in ranking[:3]], query
    assert found >= 27

"""Cross-encoders against sentence-transformers' `CrossEncoder`: scores, order, activations, limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder

from cenote import Engine, InputError, UnsupportedTaskError
from tiny import CheckpointFactory, tiny_checkpoint
from tolerances import assert_close

QUERY = "what is the capital of france"
WORDS = ["the", "river", "was", "dark", "and", "cold", "as", "night", "in", "the", "old", "city", "by", "the", "sea"]
FAMILIES = (
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "distilbert",
    "electra",
    "modernbert",
    "nomic_bert",
    "gte",
    "mpnet",
    "eurobert",
    "deberta-v2",
)


def documents_up_to(num_words: int) -> list[str]:
    """Documents of no word up to more than any limit here, in no order of length."""
    lengths = [5, 0, 1, num_words - 1, num_words, num_words + 1, 2, 13, 90]
    return [" ".join(WORDS[(i + n) % len(WORDS)] for i in range(n)) for n in lengths]


def reference_logits(folder: Path, query: str, documents: list[str]) -> npt.NDArray[np.float32]:
    """One pair at a time, so that nothing is padded."""
    model = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    return np.concatenate([model.predict([(query, document)]) for document in documents])


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_to_sentence_transformers(family: str, checkpoint: CheckpointFactory) -> None:
    folder = checkpoint(family, head="sequence_classification", num_labels=1)
    documents = documents_up_to(54)
    reference = reference_logits(folder, QUERY, documents)
    with Engine(folder, max_batch_tokens=160) as engine:
        raw = engine.score(QUERY, documents, raw_scores=True)
        assert_close(raw, reference, "raw")
        assert any(raw.truncated)
        assert not all(raw.truncated)
        assert max(raw.num_tokens) == engine.info.max_length
        assert_close(engine.score(QUERY, documents[::-1], raw_scores=True)[::-1], raw, "raw")
        alone = np.concatenate([engine.score(QUERY, document, raw_scores=True) for document in documents])
        assert_close(alone, raw, "raw")


def test_a_query_over_half_of_the_limit_is_cut_as_the_reference_cuts_it(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification", num_labels=1)
    query, documents = " ".join(WORDS * 5), documents_up_to(30)
    with Engine(folder) as engine:
        raw = engine.score(query, documents, raw_scores=True)
    assert_close(raw, reference_logits(folder, query, documents), "raw")


def test_several_queries(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification", num_labels=1)
    queries, documents = [QUERY, "who is the king", "a cat"], documents_up_to(20)[:3]
    pairs = zip(queries, documents, strict=True)
    reference = np.concatenate([reference_logits(folder, query, [document]) for query, document in pairs])
    with Engine(folder) as engine:
        assert_close(engine.score(queries, documents, raw_scores=True), reference, "raw")
        for wrong in (documents[:2], documents[:1], [*documents, "one"]):
            with pytest.raises(InputError, match=f"3 queries and {len(wrong)} documents"):
                engine.score(queries, wrong)


ACTIVATIONS = [torch.nn.Sigmoid(), torch.nn.Identity(), torch.nn.Tanh()]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_the_checkpoints_activation_is_applied_once(
    activation: torch.nn.Module, checkpoint: CheckpointFactory, tmp_path: Path
) -> None:
    """BL-09."""
    plain = checkpoint("bert", head="sequence_classification", num_labels=1)
    CrossEncoder(str(plain), device="cpu", activation_fn=activation).save(str(tmp_path / "saved"))
    documents = documents_up_to(20)
    reference = CrossEncoder(str(tmp_path / "saved"), device="cpu").predict([(QUERY, d) for d in documents])
    with Engine(tmp_path / "saved") as engine:
        scores, raw = engine.score(QUERY, documents), engine.score(QUERY, documents, raw_scores=True)
    assert_close(scores, reference)
    applied = activation(torch.from_numpy(np.asarray(raw)).double()).numpy()
    assert np.abs(applied - scores).max() <= 1e-6


def with_logits(folder: Path, scale: float, bias: float) -> Path:
    """Let the one logit be `bias` plus a little that depends on the text."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["classifier.weight"] *= scale
    tensors["classifier.bias"] = torch.tensor([bias])
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_high_logits_stay_apart(dtype: str, tmp_path: Path) -> None:
    """BL-09: a sigmoid in bf16 is exactly 1 from a logit of 6.5 on."""
    scores = []
    for bias in (-8.0, 0.0, 6.5, 7.0, 8.0, 9.0):
        folder = tiny_checkpoint("bert", tmp_path / str(bias), head="sequence_classification", num_labels=1)
        with Engine(with_logits(folder, 0.0, bias), dtype=dtype) as engine:
            scores.append(float(engine.score(QUERY, "paris")[0]))
    assert_close(scores, torch.tensor([-8.0, 0.0, 6.5, 7.0, 8.0, 9.0], dtype=torch.float64).sigmoid())
    assert sorted(set(scores)) == scores
    assert scores[0] < 0.01 < 0.99 < scores[-1]


def test_sorted_by_raw_score_with_ties_in_the_callers_order(tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path / "bert", head="sequence_classification", num_labels=1)
    texts = ["paris", "the cat", "paris", "light", "the cat", "paris"]
    with Engine(with_logits(folder, 1.0, 60.0)) as engine:
        ranking = engine.rerank(QUERY, texts)
        raw = engine.score(QUERY, texts, raw_scores=True)
    assert {entry.score for entry in ranking} == {1.0}, "the sigmoid should tell none of them apart"
    assert [entry.index for entry in ranking] == sorted(range(6), key=lambda index: (-raw[index], index))
    assert ranking.kind == "cross_encoder"


def test_top_n_threshold_and_documents(checkpoint: CheckpointFactory) -> None:
    documents = ["paris is the capital", {"text": "the cat", "id": 7}, "light and dark", ""]
    with Engine(checkpoint("bert", head="sequence_classification", num_labels=1)) as engine:
        everything = engine.rerank(QUERY, documents)
        assert sorted(entry.index for entry in everything) == [0, 1, 2, 3]
        assert all(entry.document is documents[entry.index] for entry in everything)
        assert list(engine.rerank(QUERY, documents, top_n=2)) == list(everything)[:2]
        assert list(engine.rerank(QUERY, documents, 9)) == list(everything)
        middle = everything[1].score
        assert [entry.score for entry in engine.rerank(QUERY, documents, threshold=middle)] == [
            everything[0].score,
            middle,
        ]
        assert engine.rerank(QUERY, documents, threshold=1.1) == []
        raw = engine.rerank(QUERY, documents, raw_scores=True, threshold=0.0)
        assert all(entry.score >= 0 for entry in raw)
        assert all(entry.document is None for entry in engine.rerank(QUERY, documents, return_documents=False))


def test_caps_cut_each_text_on_its_own(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert", head="sequence_classification", num_labels=1)) as engine:
        capped = engine.rerank("the cat is old", ["big black fish", "the sea"], max_tokens_per_query=2)
        assert_close(
            [e.score for e in capped], [e.score for e in engine.rerank("the cat", ["big black fish", "the sea"])]
        )
        capped = engine.rerank("a cat", ["big black fish", "the sea"], max_tokens_per_doc=2)
        assert_close([e.score for e in capped], [e.score for e in engine.rerank("a cat", ["big black", "the sea"])])
        assert {entry.index: entry.truncated for entry in capped} == {0: True, 1: False}


def test_one_long_document_does_not_sink_the_others(checkpoint: CheckpointFactory) -> None:
    """BL-31."""
    documents = ["paris", "the cat " * 100_000, "light"]
    with Engine(checkpoint("bert", head="sequence_classification", num_labels=1)) as engine:
        ranking = engine.rerank(QUERY, documents)
        assert {entry.index: entry.truncated for entry in ranking} == {0: False, 1: True, 2: False}
        scores = {entry.index: entry.score for entry in ranking}
        assert_close([scores[0], scores[2]], engine.score(QUERY, ["paris", "light"]))


@pytest.mark.parametrize(
    ("arguments", "param", "index"),
    [
        ((QUERY, []), "documents", None),
        ((QUERY, "one"), "documents", None),
        ((QUERY, ["a", 3]), "documents", 1),
        ((QUERY, ["a", {"title": "b"}]), "documents", 1),
        ((QUERY, [None]), "documents", 0),
        ((["two", "queries"], ["a"]), "query", None),
        ((None, ["a"]), "query", None),
        ((QUERY, ["a"], 0), "top_n", None),
        ((QUERY, ["a"], True), "top_n", None),
        ((QUERY, ["a"], 1.5), "top_n", None),
    ],
)
def test_bad_arguments_name_themselves(
    arguments: tuple[object, ...], param: str, index: int | None, checkpoint: CheckpointFactory
) -> None:
    with Engine(checkpoint("bert", head="sequence_classification", num_labels=1)) as engine:
        with pytest.raises(InputError) as caught:
            engine.rerank(*arguments)  # type: ignore[arg-type]
        assert (caught.value.param, caught.value.index) == (param, index)
        with pytest.raises(InputError, match="no prompt with a place for an instruction"):
            engine.rerank(QUERY, ["a"], instruction="Find it.")


def test_several_labels_are_no_relevance(checkpoint: CheckpointFactory) -> None:
    with (
        Engine(checkpoint("bert", head="sequence_classification", num_labels=3)) as engine,
        pytest.raises(UnsupportedTaskError, match=r"gives 3 labels .* use classify"),
    ):
        engine.rerank(QUERY, ["a"])


def test_a_reward_model_is_no_reranker(checkpoint: CheckpointFactory) -> None:
    with (
        Engine(checkpoint("qwen3", head="sequence_classification", num_labels=1)) as engine,
        pytest.raises(UnsupportedTaskError, match="is a reward model"),
    ):
        engine.score(QUERY, ["a"])

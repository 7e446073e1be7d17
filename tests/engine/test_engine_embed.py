"""Engine and AsyncEngine: dense vectors against sentence-transformers, alone, together, in any order."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from cenote import AsyncEngine, Engine, InputError, OptionError, TooLongError, UnsupportedTaskError
from tiny import CheckpointFactory, TinyDense, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"]


def texts_up_to(limit: int) -> list[str]:
    """Texts of one word up to more words than the limit has tokens."""
    return [" ".join(WORDS[i % len(WORDS)] for i in range(n)) for n in [1, 2, 3, 5, 8, 13, 21, 34, limit]]


FAMILIES = [
    ("bert", "mean"),
    ("roberta", "cls"),
    ("xlm-roberta", "mean"),
    ("distilbert", "mean"),
    ("electra", "cls"),
    ("modernbert", "mean"),
    ("nomic_bert", "mean"),
    ("gte", "cls"),
    ("eurobert", "mean"),
    ("jina_embeddings_v3", "mean"),
    ("mpnet", "mean"),
    ("deberta-v2", "mean"),
    ("t5", "mean"),
    ("qwen2", "lasttoken"),
    ("qwen3", "lasttoken"),
    ("llama", "lasttoken"),
    ("mistral", "lasttoken"),
    ("gemma2", "lasttoken"),
    ("gemma3_text", "mean"),
    ("gemma3_text_bidirectional", "mean"),
]


@pytest.mark.parametrize(("family", "pooling"), FAMILIES)
def test_equal_to_sentence_transformers(family: str, pooling: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path / family)
    add_sentence_transformers_files(folder, pooling_mode=pooling, normalize=True)
    reference_model = SentenceTransformer(str(folder), device="cpu")
    with Engine(folder, max_batch_tokens=128) as engine:
        texts = texts_up_to(engine.info.max_length)
        reference = np.stack([reference_model.encode(text) for text in texts])
        packed = engine.embed(texts)
        assert_close(packed, reference)
        assert_close(np.concatenate([engine.embed(text) for text in texts]), reference)
        assert_close(engine.embed(texts[::-1])[::-1], reference)
        lengths = [len(reference_model.tokenizer(text)["input_ids"]) for text in texts]
        assert packed.truncated == [length > engine.info.max_length for length in lengths]
        assert any(packed.truncated)
        assert max(packed.num_tokens) == engine.info.max_length


@pytest.mark.parametrize("normalize", [False, True])
def test_dense_modules_and_several_pooling_modes(normalize: bool, tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path / "bert")
    dense = [TinyDense(192, 48), TinyDense(48, 24)]
    add_sentence_transformers_files(folder, pooling_mode=["cls", "mean", "max"], dense=dense, normalize=normalize)
    texts = texts_up_to(64)
    reference = SentenceTransformer(str(folder), device="cpu").encode(texts)
    with Engine(folder) as engine:
        assert engine.info.dimensions == 24
        assert_close(engine.embed(texts), reference, "unit" if normalize else "raw")


def test_dimensions_are_cut_before_normalising_and_mix_in_a_step(tmp_path: Path) -> None:
    """BL-13: each request's own size, unit length, whatever runs beside it."""
    folder = tiny_checkpoint("bert", tmp_path / "bert")
    add_sentence_transformers_files(folder, normalize=True)
    with Engine(folder, any_dimensions=True) as engine:
        full = engine.embed("hello world")[0]
        answers: dict[int, np.ndarray] = {}  # type: ignore[type-arg]

        def ask(index: int) -> None:
            answers[index] = engine.embed("hello world", dimensions=(8, 16, 32)[index % 3])[0]

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        for index in range(32):
            size = (8, 16, 32)[index % 3]
            assert_close(answers[index], full[:size] / np.linalg.norm(full[:size]))
        assert_close(engine.embed("hello world", dimensions=64)[0], full)


@pytest.mark.parametrize("dimensions", [0, -1, 65, "16", 1.5, True])
def test_impossible_dimensions_are_refused(checkpoint: CheckpointFactory, dimensions: object) -> None:
    with Engine(checkpoint("bert"), pooling="mean", any_dimensions=True) as engine:
        with pytest.raises(InputError) as caught:
            engine.embed("hello", dimensions=dimensions)  # type: ignore[arg-type]
        assert caught.value.param == "dimensions"


def test_smaller_dimensions_need_a_model_trained_for_them(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        with pytest.raises(InputError, match=r"any[-_]dimensions"):
            engine.embed("hello", dimensions=16)
        assert engine.embed("hello", dimensions=64).shape == (1, 64)


def test_repeated_and_prefixed_texts_do_not_change(checkpoint: CheckpointFactory) -> None:
    """BL-05: the same text gives the same vector whatever was asked before."""
    text = " ".join(WORDS[:6])
    with Engine(checkpoint("qwen3"), pooling="last") as engine:
        first = engine.embed(text)
        for other in (text, f"{text} dog", f"lazy {text}", text):
            engine.embed(other)
            assert_close(engine.embed(text), first)


@pytest.mark.parametrize(
    ("texts", "index"),
    [([], None), (["ok", 3], 1), (["ok", None], 1), ([[5, 6], [5, 10_000]], 1), ([[5], [-1]], 1), ([[5], []], 1)],
)
def test_bad_texts_name_the_item(checkpoint: CheckpointFactory, texts: list[object], index: int | None) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        with pytest.raises(InputError) as caught:
            engine.embed(texts)  # type: ignore[arg-type]
        assert (caught.value.param, caught.value.index) == ("texts", index)
        assert engine.embed("control").shape == (1, 64)


def test_a_text_over_the_limit_is_refused_when_asked(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        long = " ".join(WORDS * 20)
        with pytest.raises(TooLongError, match="64") as caught:
            engine.embed(["short", long], truncate=False)
        assert caught.value.index == 1


@pytest.mark.parametrize("length", [31, 32, 33, 50])
def test_a_text_longer_than_the_step_budget_is_never_stuck(checkpoint: CheckpointFactory, length: int) -> None:
    """BL-27: a budget of 32 on a model of 64 positions lowers the limit, and says so."""
    with Engine(checkpoint("bert"), pooling="mean", max_batch_tokens=32) as engine:
        assert engine.info.max_length == 32
        assert any("max_batch_tokens" in d.reason for d in engine.info.decisions if d.what == "max_length")
        ids = [5 + i % 60 for i in range(length)]
        answer = engine.embed([ids, [5, 6]])
        assert answer.truncated == [length > 32, False]
        if length > 32:
            with pytest.raises(TooLongError):
                engine.embed(ids, truncate=False)


def test_token_ids_are_used_as_they_are(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        ids = engine.tokenize(["the quick fox", "a dog"])
        assert_close(engine.embed(ids), engine.embed(["the quick fox", "a dog"]))
        assert_close(engine.embed(ids[0]), engine.embed("the quick fox"))


def test_an_unknown_task_names_those_on_offer(checkpoint: CheckpointFactory) -> None:
    with (
        Engine(checkpoint("bert"), pooling="mean") as engine,
        pytest.raises(UnsupportedTaskError, match="it offers: embed"),
    ):
        engine.encode("text", outputs=["sparse"])


def test_async_engine_answers_many_callers_as_alone(checkpoint: CheckpointFactory) -> None:
    texts = texts_up_to(40)
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        reference = [engine.embed(text) for text in texts]

    async def ask() -> list[np.ndarray]:  # type: ignore[type-arg]
        async with AsyncEngine(checkpoint("bert"), pooling="mean") as engine:
            return await asyncio.gather(*[engine.embed(text) for text in texts * 3])

    for answer, expected in zip(asyncio.run(ask()), reference * 3, strict=True):
        assert_close(answer, expected, "raw")


def test_a_cancelled_await_leaves_the_engine_well(checkpoint: CheckpointFactory) -> None:
    async def ask() -> tuple[int, ...]:
        async with AsyncEngine(checkpoint("bert"), pooling="mean", max_batch_tokens=64) as engine:
            task = asyncio.create_task(engine.embed(texts_up_to(60) * 200))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await asyncio.wait_for(engine.embed("control"), timeout=5)).shape

    assert asyncio.run(ask()) == (1, 64)


def test_cuda_graphs_without_a_gpu_are_refused(checkpoint: CheckpointFactory) -> None:
    with pytest.raises(OptionError, match="needs a GPU"):
        Engine(checkpoint("bert"), pooling="mean", device="cpu", cuda_graphs=True)

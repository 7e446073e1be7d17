"""Tokens of texts and texts of tokens, against the tokenizer itself; a vector for each token, against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from cenote import Engine
from cenote.errors import EmptyInputError, InputError, UnsupportedTaskError
from reranker_folders import PAIR_TEMPLATE, tiny_reranker
from tiny import CheckpointFactory, TinyDense, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", ""]
PROMPTS = {"query": "the cat: ", "passage": "water "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_checkpoint("bert", tmp_path_factory.mktemp("tokens"))
    return add_sentence_transformers_files(
        made, pooling_mode="cls", dense=[TinyDense(64, 16)], normalize=True, prompts=PROMPTS
    )


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, threads=1) as opened:
        yield opened


class TestTokens:
    @pytest.mark.parametrize("special", [True, False])
    @pytest.mark.parametrize("prompt_name", [None, "query"])
    def test_are_those_of_the_tokenizer(
        self, engine: Engine, folder: Path, special: bool, prompt_name: str | None
    ) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        found = engine.tokens(TEXTS, add_special_tokens=special, prompt_name=prompt_name)
        for text, each in zip(TEXTS, found, strict=True):
            prompted = PROMPTS.get(prompt_name or "", "") + text
            expected = tokenizer(
                prompted, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True
            )
            assert each.text == prompted
            assert each.ids == expected["input_ids"]
            assert each.strings == tokenizer.convert_ids_to_tokens(expected["input_ids"])
            assert each.offsets == expected["offset_mapping"]
            assert each.special == [mask == 1 for mask in expected["special_tokens_mask"]]
            assert len(each) == len(each.ids)

    def test_nothing_is_cut(self, engine: Engine) -> None:
        assert len(engine.tokens("the cat " * 500)[0]) == 1002

    def test_back_to_text(self, engine: Engine, folder: Path) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = engine.tokenize(TEXTS[:2])
        for skip in (False, True):
            expected = [tokenizer.decode(each, skip_special_tokens=skip) for each in ids]
            assert engine.detokenize(ids, skip_special_tokens=skip) == expected
            assert engine.detokenize(ids[0], skip_special_tokens=skip) == expected[:1]

    @pytest.mark.parametrize("wrong", ["the cat", ["the cat"], [1.5], [[2], [200]], [-1]])
    def test_what_is_no_id_is_refused(self, engine: Engine, wrong: object) -> None:
        with pytest.raises(InputError, match="ids"):
            engine.detokenize(wrong, param="ids")  # type: ignore[arg-type]

    @pytest.mark.parametrize("empty", [[], [[]], [[5], []]])
    def test_nothing_at_all_is_an_error_of_its_own(self, engine: Engine, empty: object) -> None:
        for verb in (engine.detokenize, engine.embed):
            with pytest.raises(EmptyInputError):
                verb(empty)  # type: ignore[operator]

    def test_an_unknown_prompt_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InputError, match="passage, query"):
            engine.tokens("the cat", prompt_name="nope")

    def test_conversations(self, engine: Engine, tmp_path: Path) -> None:
        made = tiny_reranker(tmp_path, template=PAIR_TEMPLATE)
        messages = [{"role": "query", "content": "the cat"}, {"role": "document", "content": "a dog"}]
        tokenizer = AutoTokenizer.from_pretrained(made)
        with Engine(made, task="classify", threads=1) as reranker:
            found = reranker.chat_tokens(messages)
            assert found.ids == tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        with pytest.raises(UnsupportedTaskError):
            engine.chat_tokens(messages)


def test_ids_of_another_vocabulary_say_what_to_do(engine: Engine) -> None:
    """LangChain's OpenAIEmbeddings sends ids of OpenAI's tokenizer unless it is told not to."""
    with pytest.raises(InputError) as caught:
        engine.embed([[2, 5], [2, 15339, 1917]], param="input")
    for part in ("input[1]", "15339 at position 1", "200 tokens", "0 to 199", "check_embedding_ctx_length=False"):
        assert part in str(caught.value)
    assert (caught.value.param, caught.value.index, caught.value.status) == ("input", 1, 400)


class TestEmbedAll:
    @pytest.mark.parametrize("prompt_name", [None, "query"])
    def test_is_the_hidden_state_of_every_token(self, engine: Engine, folder: Path, prompt_name: str | None) -> None:
        found = engine.embed_all(TEXTS, prompt_name=prompt_name)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
        for text, rows in zip(TEXTS, found, strict=True):
            encoded = tokenizer(PROMPTS.get(prompt_name or "", "") + text, return_tensors="pt")
            with torch.inference_mode():
                assert_close(rows, model(**encoded).last_hidden_state[0], "raw")
        assert found.usage.num_tokens == [len(rows) for rows in found]

    def test_beside_embeddings_of_the_same_texts(self, engine: Engine) -> None:
        alone = np.asarray(engine.embed(TEXTS))
        engine.embed_all(TEXTS)
        assert_close(np.asarray(engine.embed(TEXTS)), alone)

    def test_of_a_long_text_what_is_kept(self, engine: Engine) -> None:
        long = "the cat and a dog " * 60
        left = engine.embed_all([long], truncation_side="left")
        right = engine.embed_all([long])
        assert left[0].shape == right[0].shape == (64, 64)
        assert not np.allclose(left[0], right[0])
        with pytest.raises(InputError, match="64"):
            engine.embed_all([long], truncate=False)

    def test_of_a_causal_model_whole_and_in_chunks(self, tmp_path: Path) -> None:
        made = add_sentence_transformers_files(tiny_checkpoint("qwen3", tmp_path), pooling_mode="lasttoken")
        texts = ["the cat and a dog " * 9, "the cat and a dog and a bird"]
        tokenizer, model = AutoTokenizer.from_pretrained(made), AutoModel.from_pretrained(made).eval()
        with Engine(made, threads=1, max_batch_tokens=16) as causal:
            found = causal.embed_all(texts)
        for text, rows in zip(texts, found, strict=True):
            with torch.inference_mode():
                expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            assert_close(rows, expected, "raw")

    def test_of_a_model_of_labels_there_is_none(self, checkpoint: CheckpointFactory) -> None:
        with (
            Engine(checkpoint("bert", head="sequence_classification"), threads=1) as labels,
            pytest.raises(UnsupportedTaskError),
        ):
            labels.embed_all(["the cat"])


def test_texts_and_pairs_in_one_list_are_labelled_as_alone(checkpoint: CheckpointFactory) -> None:
    items = ["the cat", ("a dog", "a bird"), "water", ("the cat", "a dog")]
    with Engine(checkpoint("bert", head="sequence_classification"), threads=1) as engine:
        together = engine.classify(items)
        for item, found in zip(items, together, strict=True):
            (alone,) = engine.classify([item])
            assert_close(list(found.scores.values()), np.array(list(alone.scores.values())))
        with pytest.raises(InputError, match=r"texts\[2\]") as caught:
            engine.classify(["a", ("a", "b"), "the cat " * 99], truncate=False)
        assert caught.value.status == 400

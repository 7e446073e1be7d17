"""Rerankers made of language models, against the full vocabulary head and the prompts of their model cards."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import AutoModelForCausalLM, AutoTokenizer

from cenote import CheckpointError, Engine, InputError, TooLongError
from cenote.checkpoint import read_checkpoint
from reranker_folders import ATTACHED_TAIL_TEMPLATE, PAIR_TEMPLATE, add_card, convert_head, edit, tiny_reranker
from tolerances import assert_close

QUERY = "what is the capital of france"
DOCUMENTS = ["paris is the capital", "", "the cat and the dog", "light. dark? fire: ice", " a  stone\n\nand water "]
Ids = list[int]
Encode = Callable[[str], Ids]

QWEN3_TASK = "Given a web search query, retrieve relevant passages that answer the query"
QWEN3_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
QWEN3_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
MXBAI_BEFORE = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
)
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 "
    "for not relevant, 1 for relevant).\nRelevance:"
)
GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)


def qwen3_ids(encode: Encode, query: str, document: str, task: str | None, limit: int) -> Ids:
    """The model card: the middle is truncated, then the ends are put around it."""
    before, after = encode(QWEN3_BEFORE), encode(QWEN3_AFTER)
    middle = encode(f"<Instruct>: {task or QWEN3_TASK}\n<Query>: {query}\n<Document>: {document}")
    return before + middle[: limit - len(before) - len(after)] + after


def mxbai_ids(encode: Encode, query: str, document: str, task: str | None, limit: int) -> Ids:
    """`mxbai_rerank`: every part is tokenised on its own, the document gets what is left."""
    asked = f"query: {query}" if task is None else f"instruction: {task}\nquery: {query}"
    before, sep = encode(MXBAI_BEFORE) + encode(asked), encode("\n")
    after = sep + encode(MXBAI_TASK) + encode("<|im_end|>\n<|im_start|>assistant\n")
    return before + (sep + encode(f"document: {document}"))[: limit - len(before) - len(after)] + after


def gemma_ids(encode: Encode, query: str, document: str, task: str | None, limit: int) -> Ids:
    """`FlagLLMReranker`: `<bos>A: query`, a line, `B: passage`, a line, the prompt; each tokenised on its own."""
    before = encode("<bos>") + encode(f"A: {query}")
    after = encode("\n") + encode(task or GEMMA_TASK)
    return before + (encode("\n") + encode(f"B: {document}"))[: limit - len(before) - len(after)] + after


FAMILIES: dict[str, tuple[dict[str, Any], Callable[..., Ids]]] = {
    "qwen3-reranker": ({"model_type": "qwen3", "words": ("yes", "no")}, qwen3_ids),
    "mxbai-rerank-v2": ({"model_type": "qwen2", "words": ("1", "0")}, mxbai_ids),
    "bge-reranker-v2-gemma": ({"model_type": "gemma", "words": ("Yes", "<bos>")}, gemma_ids),
}


def full_head_scores(folder: Path, prompts: Sequence[Ids], words: Sequence[str]) -> npt.NDArray[np.float32]:
    """The whole vocabulary head on the last row: the logit of the first word less that of the second, if it is one."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    yes, no = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(list(words))
    rows = []
    for ids in prompts:
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1]
        rows.append(float(logits[yes] if words[1].startswith("<") else logits[yes] - logits[no]))
    return np.array(rows, np.float32)


def encoder_of(folder: Path) -> Encode:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # type: ignore[no-any-return]


def long_documents(limit: int) -> list[str]:
    """Documents with numbers of words around what fits next to any of the prompts here, and far more."""
    return [" ".join(["stone"] * n) for n in (*range(0, limit, 7), 3 * limit)]


@pytest.mark.parametrize("instruction", [None, "Find the city."])
@pytest.mark.parametrize("name", FAMILIES)
def test_equal_to_the_full_head_with_the_prompt_of_the_card(name: str, instruction: str | None, tmp_path: Path) -> None:
    arguments, card_ids = FAMILIES[name]
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512, **arguments), name)
    encode = encoder_of(folder)
    prompts = [card_ids(encode, QUERY, document, instruction, 512) for document in DOCUMENTS]
    reference = full_head_scores(folder, prompts, arguments["words"])
    with Engine(folder) as engine:
        raw = engine.score(QUERY, DOCUMENTS, raw_scores=True, instruction=instruction)
        assert raw.num_tokens == list(map(len, prompts))
        assert_close(raw, reference, "raw")
        assert_close(engine.score(QUERY, DOCUMENTS[::-1], raw_scores=True, instruction=instruction)[::-1], raw, "raw")
        alone = [engine.score(QUERY, each, raw_scores=True, instruction=instruction)[0] for each in DOCUMENTS]
        assert_close(np.array(alone), raw, "raw")
        ranking = engine.rerank(QUERY, DOCUMENTS, instruction=instruction)
        assert ranking.kind == "llm_reranker"
        assert [entry.index for entry in ranking] == sorted(range(len(DOCUMENTS)), key=lambda i: (-raw[i], i))
        expected = torch.from_numpy(np.sort(reference)[::-1].copy()).sigmoid()
        assert_close([entry.score for entry in ranking], expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_long_document_never_costs_the_template_its_tail(name: str, tmp_path: Path) -> None:
    """BL-11: a sweep over the limit against the card's own truncation; the score without the tail is another."""
    arguments, card_ids = FAMILIES[name]
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512, **arguments), name)
    encode, documents = encoder_of(folder), long_documents(512)
    prompts = [card_ids(encode, QUERY, document, None, 512) for document in documents]
    reference = full_head_scores(folder, prompts, arguments["words"])
    with Engine(folder, max_batch_tokens=2048) as engine:
        raw = engine.score(QUERY, documents, raw_scores=True)
        assert raw.num_tokens == list(map(len, prompts))
        assert max(raw.num_tokens) == 512
        assert raw.truncated == [len(card_ids(encode, QUERY, document, None, 10_000)) > 512 for document in documents]
        assert_close(raw, reference, "raw")
    (cut_off,) = full_head_scores(
        folder, [card_ids(encode, QUERY, documents[-1], None, 10_000)[:512]], arguments["words"]
    )
    assert abs(cut_off - raw[-1]) > 0.01


def test_the_query_is_never_cut_unless_a_cap_asks_for_it(tmp_path: Path) -> None:
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512), "qwen3-reranker")
    with Engine(folder) as engine:
        with pytest.raises(TooLongError, match=r"query and the prompt around it .* max_tokens_per_query") as caught:
            engine.rerank("stone " * 600, ["a cat"])
        assert caught.value.param == "query"
        capped = engine.rerank("stone " * 600, ["a cat", "water"], max_tokens_per_query=20)
        assert_close(
            [e.score for e in capped], [e.score for e in engine.rerank(" ".join(["stone"] * 20), ["a cat", "water"])]
        )
        assert all(entry.truncated for entry in capped)
        capped = engine.rerank(QUERY, ["stone water fire"], max_tokens_per_doc=2)
        assert_close([capped[0].score], [engine.rerank(QUERY, ["stone water"])[0].score])


@pytest.mark.parametrize("template", [PAIR_TEMPLATE, ATTACHED_TAIL_TEMPLATE], ids=["control token", "attached tail"])
def test_logit_score_equals_sentence_transformers(template: str, tmp_path: Path) -> None:
    """With the template of the checkpoint, its truncation, and a prompt as the instruction."""
    plain = tiny_reranker(tmp_path / "plain", template=template)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    reference = CrossEncoder(str(tmp_path / "saved"), device="cpu", activation_fn=torch.nn.Identity())
    documents = [*DOCUMENTS, *long_documents(256)]
    with Engine(tmp_path / "saved", max_batch_tokens=1024) as engine:
        for instruction in (None, "the old one"):
            expected = [reference.predict([(QUERY, each)], prompt=instruction)[0] for each in documents]
            raw = engine.score(QUERY, documents, raw_scores=True, instruction=instruction)
            assert_close(raw, np.array(expected), "raw")
            assert any(raw.truncated)
            assert max(raw.num_tokens) == 256


def test_the_template_of_the_checkpoint_comes_before_that_of_the_family(tmp_path: Path) -> None:
    named = add_card(tiny_reranker(tmp_path / "model", limit=512, template=PAIR_TEMPLATE), "qwen3-reranker")
    encode = encoder_of(named)
    tokenizer = AutoTokenizer.from_pretrained(named)
    messages = [{"role": "query", "content": QUERY}, {"role": "document", "content": DOCUMENTS[0]}]
    prompt = encode(tokenizer.apply_chat_template(messages, tokenize=False))
    with Engine(named) as engine:
        raw = engine.score(QUERY, DOCUMENTS[0], raw_scores=True)
    assert_close(raw, full_head_scores(named, [prompt], ("yes", "no")), "raw")


CHAT_TEMPLATE = "{% for m in messages %}{% if m.role in ('user', 'assistant') %}{{ m.content }}{% endif %}{% endfor %}"


def test_a_chat_template_for_other_roles_is_not_used(tmp_path: Path) -> None:
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512, template=CHAT_TEMPLATE), "qwen3-reranker")
    prompt = qwen3_ids(encoder_of(folder), QUERY, DOCUMENTS[0], None, 512)
    with Engine(folder) as engine:
        raw = engine.score(QUERY, DOCUMENTS[0], raw_scores=True)
    assert_close(raw, full_head_scores(folder, [prompt], ("yes", "no")), "raw")


@pytest.mark.parametrize("template", [None, CHAT_TEMPLATE], ids=["none", "other roles"])
def test_without_a_template_it_does_not_start(template: str | None, tmp_path: Path) -> None:
    plain = tiny_reranker(tmp_path / "plain", template=template)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    with pytest.raises(
        CheckpointError, match=r"roles `query` and `document`: put one into a file chat_template\.jinja"
    ):
        Engine(tmp_path / "saved")


def test_a_template_that_rewrites_texts_is_refused(tmp_path: Path) -> None:
    shouting = PAIR_TEMPLATE.replace(
        "map(attribute='content') | first }}\ndoc", "map(attribute='content') | first | upper }}\ndoc"
    )
    plain = tiny_reranker(tmp_path / "plain", template=shouting)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    with pytest.raises(CheckpointError, match="does more with a query and a document"):
        Engine(tmp_path / "saved")


@pytest.mark.parametrize("token", ["<|im_end|>", "<|im_start|>", "</think>", "<|endoftext|>"])
def test_control_tokens_in_a_text_are_read_as_text(token: str, tmp_path: Path) -> None:
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512), "qwen3-reranker")
    broken = f"{token[0]} {token[1:]}"
    prompt = qwen3_ids(encoder_of(folder), f"who {broken}", f"a {broken} cat", f"do {broken}", 512)
    with Engine(folder) as engine:
        raw = engine.score(f"who {token}", f"a {token} cat", raw_scores=True, instruction=f"do {token}")
        assert raw.num_tokens == [len(prompt)]
    assert_close(raw, full_head_scores(folder, [prompt], ("yes", "no")), "raw")


CONVERTED: dict[str, tuple[dict[str, Any], bool, str | None]] = {
    "by the option": ({"task": "rerank"}, False, None),
    "by the name of the prompt": ({"prompt_family": "qwen3-reranker"}, False, None),
    "by its model card": ({}, False, "qwen3-reranker"),
    "by its weights": ({}, True, None),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_a_converted_reranker_scores_like_the_original(case: str, tmp_path: Path) -> None:
    """`w_yes - w_no` as the one row of `Qwen3ForSequenceClassification`, in a folder whose name says nothing."""
    options, keep, card = CONVERTED[case]
    original = add_card(tiny_reranker(tmp_path / "original", limit=512), "qwen3-reranker")
    converted = tiny_reranker(tmp_path / "models", limit=512, head="sequence_classification", num_labels=1)
    convert_head(original, converted, keep=keep)
    if card is not None:
        add_card(converted, card)
    documents = [*DOCUMENTS, *long_documents(512)[::8]]
    with Engine(original, dtype="float32") as first, Engine(converted, dtype="float32", **options) as second:
        assert_close(
            second.score(QUERY, documents, raw_scores=True), first.score(QUERY, documents, raw_scores=True), "raw"
        )
        assert_close(second.score(QUERY, documents), first.score(QUERY, documents))
        assert second.rerank(QUERY, documents).kind == "llm_reranker"


@pytest.mark.parametrize("model_type", ["qwen3", "qwen2", "gemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_head_that_is_made_of_vocabulary_rows_is_seen(model_type: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Whatever it was rounded to; any other head stays a reward, even beside the same vocabulary."""
    answers = {"qwen3": ("yes", "no"), "qwen2": ("1", "0"), "gemma": ("Yes", None)}[model_type]
    words = tuple(word for word in answers if word is not None)
    original = tiny_reranker(tmp_path / "original", model_type, words=words)
    folder = tiny_reranker(tmp_path / "model", model_type, words=words, head="sequence_classification", num_labels=1)
    weights = load_file(original / "model.safetensors")
    if "lm_head.weight" not in weights:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        save_file({key: value.clone() for key, value in weights.items()}, original / "model.safetensors")
    convert_head(original, folder, *answers, keep=True)
    weights = {key: value.to(dtype) for key, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    spec = read_checkpoint(folder)
    assert spec.classify is not None
    assert spec.classify.kind == "cross_encoder"
    assert any(fact.what == "classify" and fact.source.startswith("score.weight") for fact in spec.facts)
    torch.manual_seed(1)
    save_file(weights | {"score.weight": torch.randn(1, 64).to(dtype)}, folder / "model.safetensors", {"format": "pt"})
    spec = read_checkpoint(folder)
    assert spec.classify is not None
    assert spec.classify.kind == "reward"


def test_the_prompt_that_the_user_names_comes_before_that_of_the_checkpoint(tmp_path: Path) -> None:
    folder = tiny_reranker(tmp_path / "model", limit=512, template=PAIR_TEMPLATE)
    prompt = qwen3_ids(encoder_of(folder), QUERY, DOCUMENTS[0], None, 512)
    with Engine(folder, prompt_family="qwen3-reranker", dtype="float32") as engine:
        raw = engine.score(QUERY, DOCUMENTS[0], raw_scores=True)
    assert_close(raw, full_head_scores(folder, [prompt], ("yes", "no")), "raw")


def test_a_known_prompt_on_another_type_of_model(tmp_path: Path) -> None:
    """Llama, trained with the prompt of Qwen3-Reranker: only the option can say so."""
    folder = tiny_reranker(tmp_path / "model", "llama", limit=512)
    prompts = [qwen3_ids(encoder_of(folder), QUERY, document, None, 512) for document in DOCUMENTS]
    with Engine(folder, prompt_family="qwen3-reranker", dtype="float32") as engine:
        raw = engine.score(QUERY, DOCUMENTS, raw_scores=True)
    assert_close(raw, full_head_scores(folder, prompts, ("yes", "no")), "raw")


def test_answers_that_the_configuration_names_as_vllm_reads_them(tmp_path: Path) -> None:
    """`Qwen3ForSequenceClassification` whose score is still in the vocabulary head."""
    folder = tiny_reranker(tmp_path / "model", limit=512)
    prompts = [qwen3_ids(encoder_of(folder), QUERY, document, None, 512) for document in DOCUMENTS]
    expected = full_head_scores(folder, prompts, ("yes", "no"))
    turned = {"architectures": ["Qwen3ForSequenceClassification"], "is_original_qwen3_reranker": True}
    edit(folder / "config.json", classifier_from_token=["no", "yes"], **turned)
    with Engine(folder, dtype="float32") as engine:
        assert_close(engine.score(QUERY, DOCUMENTS, raw_scores=True), expected, "raw")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_close_scores_apart(dtype: str, tmp_path: Path) -> None:
    """The two rows are kept, and their logits given, in fp32."""
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512), "qwen3-reranker")
    documents = long_documents(128)
    with Engine(folder, dtype=dtype) as half:
        scores = half.score(QUERY, documents)
    assert scores.dtype == np.float32
    assert len(set(scores.tolist())) == len(documents)


def test_the_shared_prefix_is_computed_once(tmp_path: Path) -> None:
    folder = add_card(tiny_reranker(tmp_path / "model", limit=512), "qwen3-reranker")
    with Engine(folder, max_batch_tokens=8192) as engine:
        runner = engine._core.lane.runner
        before = runner.num_tokens
        scores = engine.score(QUERY, DOCUMENTS, raw_scores=True)
        assert runner.num_tokens - before < 0.6 * sum(scores.num_tokens)


def test_a_prompt_template_that_takes_no_instruction_says_so(tmp_path: Path) -> None:
    fixed = (
        "<|im_start|>{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    )
    plain = tiny_reranker(tmp_path / "plain", template=fixed)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    with Engine(tmp_path / "saved") as engine:
        with pytest.raises(InputError, match="has no place for an instruction") as caught:
            engine.rerank(QUERY, DOCUMENTS, instruction="Find it.")
        assert caught.value.param == "instruction"
        reference = CrossEncoder(str(tmp_path / "saved"), device="cpu", activation_fn=torch.nn.Identity())
        expected = [reference.predict([(QUERY, each)])[0] for each in DOCUMENTS]
        assert_close(engine.score(QUERY, DOCUMENTS, raw_scores=True), np.array(expected), "raw")


def test_a_saved_prompt_is_the_instruction(tmp_path: Path) -> None:
    plain = tiny_reranker(tmp_path / "plain", template=PAIR_TEMPLATE)
    model = CrossEncoder(str(plain), device="cpu", prompts={"task": "the old one"}, default_prompt_name="task")
    model.save(str(tmp_path / "saved"))
    assert json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text())["prompts"]
    reference = CrossEncoder(str(tmp_path / "saved"), device="cpu", activation_fn=torch.nn.Identity())
    with Engine(tmp_path / "saved") as engine:
        assert_close(
            engine.score(QUERY, DOCUMENTS[0], raw_scores=True), reference.predict([(QUERY, DOCUMENTS[0])]), "raw"
        )


def test_edit_writes_json(tmp_path: Path) -> None:
    edit(tmp_path / "a.json", a=1)
    edit(tmp_path / "a.json", b=2)
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1, "b": 2}

"""Pairs in the prompt of a language model: ids as its model card or its template makes them, only documents cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from text_folders import encoder_for
from transformers import AutoTokenizer

from cenote.errors import CheckpointError, InputError, TooLongError
from cenote.text.encoder import PairOptions

QUERY = "what do foxes eat? "
DOCUMENTS = ["The quick brown fox.", "", " ", " leading", "trailing \n", "\n\nlines\n", "Höhlen 洞窟", "a" * 50]
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TEMPLATE = (
    "{%- set q = messages | selectattr('role', 'eq', 'query') | first %}"
    "{%- set d = messages | selectattr('role', 'eq', 'document') | first %}"
    "{%- for m in messages if m.role == 'system' %}<|im_start|>{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "<|im_start|>user\n"
)
TEMPLATES = {
    "ends with a control token": TEMPLATE + "Query: {{ q.content }}\nDocument: {{ d.content }}<|im_end|>\n",
    "text behind the document": TEMPLATE + "Query: {{ q.content }}\nDocument: {{ d.content }}\nRelevant:",
    "document first": TEMPLATE + "{{ d.content }}<|im_end|>{{ q.content }}. Relevant:<|im_end|>",
    "document first in one stretch": TEMPLATE + "{{ d.content }} is about {{ q.content }}?<|im_end|>",
    "stripped": TEMPLATE + "Query: {{ q.content | trim }} Document: {{ d.content | trim }}<|im_end|>",
    "structured": TEMPLATE.replace("m.content", "m.content[0].text")
    + "{{ q.content[0].text }} or {{ d.content[0].text }}<|im_end|>",
}
FolderFactory = Callable[[str], Path]


@pytest.mark.parametrize("limit", [*range(60, 200, 9), 2000])
def test_ids_of_the_qwen3_card(limit: int, tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder("qwen")
    auto = AutoTokenizer.from_pretrained(folder)
    task = "Given a web search query, retrieve relevant passages that answer the query"
    before, after = (auto(text, add_special_tokens=False)["input_ids"] for text in (BEFORE, AFTER))
    documents = [*DOCUMENTS, " ".join(["fox"] * 200)]
    middles = [f"<Instruct>: {task}\n<Query>: {QUERY}\n<Document>: {document}" for document in documents]
    tokens = [auto(middle, add_special_tokens=False)["input_ids"] for middle in middles]
    encoder = encoder_for(folder, max_length=limit, pair_prompt="qwen3-reranker")
    if len(before) + len(after) + len(tokens[1]) >= limit:
        with pytest.raises(TooLongError, match=r"^query and the prompt around it"):
            encoder.encode_pairs(QUERY, documents)
        return
    room = limit - len(before) - len(after)
    pairs = encoder.encode_pairs(QUERY, documents)
    assert [pair.token_ids.tolist() for pair in pairs] == [before + middle[:room] + after for middle in tokens]
    assert [pair.truncated for pair in pairs] == [len(middle) > room for middle in tokens]


@pytest.mark.parametrize("task", [None, " Find it. "])
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tokenizer", ["qwen", "qwen_without_eos", "llama3"])
def test_ids_of_a_template(tokenizer: str, name: str, task: str | None, tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder(tokenizer)
    auto = AutoTokenizer.from_pretrained(folder)

    def expected(document: str) -> list[int]:
        roles = {"system": task, "query": QUERY, "document": document}
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if name == "structured" else text}
            for role, text in roles.items()
            if text is not None
        ]
        rendered = auto.apply_chat_template(messages, chat_template=TEMPLATES[name], tokenize=False)
        return auto(rendered, add_special_tokens=False)["input_ids"]  # type: ignore[no-any-return]

    encoder = encoder_for(folder, max_length=500, pair_prompt="chat-template", chat_template=TEMPLATES[name])
    pairs = encoder.encode_pairs(QUERY, DOCUMENTS, PairOptions(instruction=task))
    assert [pair.token_ids.tolist() for pair in pairs] == [expected(document) for document in DOCUMENTS]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_ends_stay_whatever_the_limit(name: str, tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder("qwen")
    document = " ".join(["fox"] * 60)

    def read(limit: int) -> list[int]:
        encoder = encoder_for(folder, max_length=limit, pair_prompt="chat-template", chat_template=TEMPLATES[name])
        return encoder.encode_pairs(QUERY, document)[0].token_ids.tolist()  # type: ignore[no-any-return]

    whole = read(1000)
    fox = whole[next(i for i in range(len(whole)) if whole[i : i + 5] == [whole[i]] * 5)]
    first, last = whole.index(fox), len(whole) - 1 - whole[::-1].index(fox)
    for limit in range(len(whole) - 40, len(whole) + 3):
        cut = read(limit)
        assert len(cut) == min(limit, len(whole))
        assert cut[:first] == whole[:first]
        assert cut[len(cut) - (len(whole) - 1 - last) :] == whole[last + 1 :]


def test_long_documents_are_not_tokenised_whole(tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder("qwen")
    for name in ("ends with a control token", "text behind the document"):
        encoder = encoder_for(folder, max_length=200, pair_prompt="chat-template", chat_template=TEMPLATES[name])
        started = time.perf_counter()
        (pair,) = encoder.encode_pairs(QUERY, "the quick fox " * 300_000)
        assert time.perf_counter() - started < 2
        assert (len(pair), pair.truncated) == (200, True)
        with pytest.raises(TooLongError, match=r"^documents\[1\] has .* and the limit is 200"):
            encoder.encode_pairs(QUERY, ["a", "fox " * 400], PairOptions(truncate=False))


def test_texts_with_control_tokens_and_lone_surrogates(tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder("qwen")
    encoder = encoder_for(folder, max_length=400, pair_prompt="qwen3-reranker")
    hostile, harmless = (encoder.encode_pairs("q", text)[0] for text in ("<|im_end|> \ud83d", "< |im_end|> \ufffd"))
    assert hostile.token_ids.tolist() == harmless.token_ids.tolist()


def test_a_tokenizer_that_marks_the_start_of_a_text_does_not_read_in_pieces(tokenizer_folder: FolderFactory) -> None:
    folder = tokenizer_folder("llama2")
    template = TEMPLATES["ends with a control token"].replace("<|im_start|>", "<s>").replace("<|im_end|>", "</s>")
    with pytest.raises(CheckpointError, match="piece by piece"):
        encoder_for(folder, max_length=400, pair_prompt="chat-template", chat_template=template)


def test_options_that_a_prompt_does_not_have(tokenizer_folder: FolderFactory) -> None:
    encoder = encoder_for(tokenizer_folder("qwen"), max_length=400, pair_prompt="qwen3-reranker")
    with pytest.raises(InputError, match="cut at its end only"):
        encoder.encode_pairs("q", "d", PairOptions(truncation_side="left"))
    with pytest.raises(InputError, match=r"2 texts in query and 3 in documents"):
        encoder.encode_pairs(["q", "p"], ["a", "b", "c"])
    assert len(encoder.encode_pairs(["q", "p"], ["a", "b"])) == 2

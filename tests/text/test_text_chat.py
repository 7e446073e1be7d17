"""Conversations equal the tokenizer's own `apply_chat_template`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from text_folders import encoder_for
from transformers import AutoTokenizer

from cenote.errors import CheckpointError, InputError, TooLongError, UnsupportedTaskError
from cenote.text.encoder import ChatOptions

TEMPLATE = (
    "{%- for message in messages %}{%- if message.role == 'tool' %}{{ raise_exception('no tools here') }}{%- endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
CHATS = [
    [{"role": "user", "content": "hello world"}, {"role": "assistant", "content": "The quick brown fox"}],
    [{"role": "user", "content": "Höhlen <|im_end|> 洞窟"}],
]


@pytest.mark.parametrize("settings", [{}, {"add_generation_prompt": True}, {"continue_final_message": True}])
@pytest.mark.parametrize("limit", [12, 200])
def test_conversations_equal_the_tokenizers(
    settings: dict[str, bool], limit: int, tokenizer_folder: Callable[[str], Path]
) -> None:
    folder = tokenizer_folder("qwen")
    encoder = encoder_for(folder, max_length=limit, chat_template=TEMPLATE)
    auto = AutoTokenizer.from_pretrained(folder)
    for chat, ours in zip(CHATS, encoder.encode_chats(CHATS, ChatOptions(**settings)), strict=True):
        whole = auto.apply_chat_template(chat, chat_template=TEMPLATE, return_dict=False, **settings)
        assert ours.token_ids.tolist() == whole[:limit]
        assert ours.truncated == (len(whole) > limit)


def test_wrong_conversations_are_refused_and_named(tokenizer_folder: Callable[[str], Path]) -> None:
    encoder = encoder_for(tokenizer_folder("qwen"), max_length=20, chat_template=TEMPLATE)
    good = [{"role": "user", "content": "hello"}]
    bad: list[Any] = [[], "hello", [1], [{"role": "user"}], [{"content": "x"}], [{"role": "tool", "content": "x"}]]
    for chat in bad:
        with pytest.raises(InputError, match=r"^messages\[1\] ") as caught:
            encoder.encode_chats([good, chat])
        assert caught.value.index == 1
    with pytest.raises(InputError, match="no tools here"):
        encoder.encode_chats([bad[-1]])
    with pytest.raises(InputError, match="messages is empty"):
        encoder.encode_chats([])
    with pytest.raises(InputError, match="exclude each other"):
        ChatOptions(add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(TooLongError, match=r"messages\[0\] has \d+ tokens and the limit is 20"):
        encoder.encode_chats([[{"role": "user", "content": "fox " * 50}]], ChatOptions(truncate=False))
    lone = encoder.encode_chats([[{"role": "user", "content": "a \ud83d b"}]])[0]
    assert (
        lone.token_ids.tolist()
        == encoder.encode_chats([[{"role": "user", "content": "a \ufffd b"}]])[0].token_ids.tolist()
    )


def test_templates_are_run_in_a_sandbox(tokenizer_folder: Callable[[str], Path]) -> None:
    hostile = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    encoder = encoder_for(tokenizer_folder("qwen"), chat_template=hostile)
    with pytest.raises(InputError, match="unsafe"):
        encoder.encode_chats(CHATS)
    with pytest.raises(CheckpointError, match="chat template is broken"):
        encoder_for(tokenizer_folder("qwen"), chat_template="{% for %}").encode_chats(CHATS)
    with pytest.raises(UnsupportedTaskError, match="no chat template"):
        encoder_for(tokenizer_folder("qwen")).encode_chats(CHATS)

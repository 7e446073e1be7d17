"""`engine.tokenize`, `engine.tokens` and `engine.detokenize`: texts as the model's tokenizer reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence as Many

from cenote.core import Core
from cenote.text.chat import Messages
from cenote.text.inputs import Texts
from cenote.text.options import ChatOptions, EncodeOptions
from cenote.text.tokens import Tokens


def tokenize(core: Core, texts: Texts) -> list[list[int]]:
    """Return the token ids of each text, special tokens included, no prompt, nothing cut."""
    return core.encoder.tokenize(texts)


def tokens(
    core: Core,
    texts: str | Many[str],
    *,
    add_special_tokens: bool = True,
    prompt_name: str | None = None,
    param: str = "texts",
) -> list[Tokens]:
    """Return the tokens of each text: ids, strings, which are special, and their characters in the text.

    Nothing is cut. The prompt `prompt_name` goes before each text, by default none.
    """
    options = EncodeOptions(prompt_name=prompt_name, prompt="" if prompt_name is None else None, param=param)
    return core.encoder.tokens(texts, options, add_special_tokens=add_special_tokens)


def chat_tokens(
    core: Core, messages: Messages, *, add_special_tokens: bool = False, options: ChatOptions | None = None
) -> Tokens:
    """Return the tokens of one conversation, written out by the checkpoint's chat template.

    The template brings its special tokens along; `add_special_tokens` puts the tokenizer's around them once more.
    Raises `UnsupportedTaskError` where the checkpoint has no template.
    """
    text = core.encoder.chat_text(messages, options or ChatOptions())
    return tokens(core, [text], add_special_tokens=add_special_tokens)[0]


def detokenize(
    core: Core, token_ids: Texts, *, skip_special_tokens: bool = False, param: str = "token_ids"
) -> list[str]:
    """Return the text of each list of token ids, or of one list. Raises `InputError` for ids that it has not."""
    return core.encoder.decode(token_ids, skip_special_tokens=skip_special_tokens, param=param)

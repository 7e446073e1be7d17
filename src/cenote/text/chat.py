"""Conversations, written out by the checkpoint's own chat template, as sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2.exceptions import TemplateError, TemplateSyntaxError

from cenote.errors import CheckpointError, InputError
from cenote.text.content import Content, Wanted, read_contents
from cenote.text.inputs import Place
from cenote.text.load import LoadedTokenizer
from cenote.text.locality import Locality
from cenote.text.options import ChatOptions
from cenote.text.tokenized import TokenizedText
from cenote.text.unicode import scalar_text

Messages = Sequence[Mapping[str, Any]]
"""One conversation: each message has a `role` and a `content`."""

_RESERVED = frozenset(
    {
        *("conversation", "messages", "tools", "chat_template", "add_generation_prompt", "continue_final_message"),
        *("tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    }
)
"""What `apply_chat_template` of transformers takes for itself."""
_BAD_MESSAGES = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What templates raise for messages that they cannot write out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEncoder:
    """Writes conversations out in the sandbox of transformers and tokenises them; the template brings every special
    token along, so none is added.
    """

    tokenizer: LoadedTokenizer
    locality: Locality
    template: str
    has_types: bool
    max_length: int

    def render(self, messages: Messages, options: ChatOptions, place: Place) -> str:
        """Return the text that the template makes of one conversation. Raise `InputError` where it refuses it."""
        _check(messages, place)
        _check_values(options)
        try:
            rendered: str = self.tokenizer.hf.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                **options.template_values,
            )
        except TemplateSyntaxError as error:
            raise CheckpointError(f"the checkpoint's chat template is broken: {error}") from error
        except _BAD_MESSAGES as error:
            raise place.error(f"cannot be written out by this model's chat template: {error}") from error
        return scalar_text(rendered)

    def encode(self, chats: Sequence[Messages], options: ChatOptions) -> list[TokenizedText]:
        """Return one sequence for each conversation, cut in ids like a text."""
        places = [Place(options.param, i) for i in range(len(chats))]
        if not places:
            raise InputError(f"{options.param} is empty: pass at least one conversation", param=options.param)
        texts = [self.render(chat, options, place) for chat, place in zip(chats, places, strict=True)]
        limit = min(self.max_length, options.max_length or self.max_length)
        side = options.truncation_side or self.tokenizer.truncation_side
        wanted = Wanted(limit=limit, side=side, exact=not options.truncate)
        contents = read_contents(self.tokenizer.backend, self.locality, texts, wanted)
        for content, place in zip(contents, places, strict=True):
            if content.length > limit and not options.truncate:
                raise place.too_long(content.length, limit, is_exact=content.is_exact)
            if not content.length:
                raise place.error("has no tokens")
        return [self._sequence(content) for content in contents]

    def _sequence(self, content: Content) -> TokenizedText:
        num_rows = len(content.ids)
        return TokenizedText(
            token_ids=content.ids,
            token_type_ids=np.zeros(num_rows, np.int64) if self.has_types else None,
            num_keys=num_rows,
            truncated=num_rows < content.length,
        )


def _check_values(options: ChatOptions) -> None:
    for name in options.template_values:
        if name in _RESERVED:
            raise InputError(
                f"template_values may not have {name!r}, which is no value of the template", param="template_values"
            )


def _check(messages: object, place: Place) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise place.error("must be a list of at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise place.error("holds something else than messages with a role and a content")

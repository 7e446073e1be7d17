"""What is asked of the vectors of texts: the fields that bodies have in common, and the request that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from cenote.errors import InputError
from cenote.params import OutputDtype
from cenote.server.encodings import Encoding
from cenote.server.schemas import (
    ChatTemplate,
    ModelName,
    OfImages,
    Padding,
    PromptName,
    RequestBody,
    Side,
    TextsOrIds,
    TruncatePromptTokens,
    UseActivation,
)
from cenote.text.long_texts import LongTexts
from cenote.text.options import ChatOptions, TruncationSide

Messages = Annotated[
    SkipValidation[list[dict[str, Any]] | list[list[dict[str, Any]]]],
    Field(description="Instead of texts: one conversation, or several, for the checkpoint's chat template."),
]
"""Checked by the engine, which names the conversation that is wrong."""


@dataclass(frozen=True, kw_only=True)
class EmbedRequest:
    """Texts, what is asked of their vectors, and the client's names of its fields, which errors use.

    `input_type` is any client's word for it. `encodings` are checked against the width of the vectors, not applied.
    `max_tokens` and `truncate_prompt_tokens` both lower the model's limit; the latter may not be above it.
    `max_items` is the dialect's own limit, where it is lower than the server's.
    """

    model: str | None
    texts: Any
    encodings: Sequence[Encoding]
    texts_param: str = "input"
    input_type_param: str = "input_type"
    encoding_param: str = "encoding_format"
    input_type: str | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_side: TruncationSide | None = None
    max_tokens: int | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    long_texts: LongTexts | None = None
    chunk_overlap: int | None = None
    max_items: int | None = None


@dataclass(frozen=True, kw_only=True)
class MultiVectorOptions:
    """What is asked of the multi-vectors of a request, and of its sparse vectors: the strings of their terms."""

    dimensions: int | None = None
    dtype: OutputDtype | None = None
    return_tokens: bool = False


class EmbedBody(RequestBody):
    """The fields that all APIs with an `input_type` call the same; a route adds its own, in words of its own."""

    model: ModelName = None
    input_type: str | None = Field(
        None, description="Add the prompt that the checkpoint defines for `query`, `document` or another use."
    )
    prompt_name: PromptName = None

    def request(self, texts: Any, encodings: Sequence[Encoding] = ()) -> EmbedRequest:
        """Return what these fields ask for; `dataclasses.replace` adds what a route's own fields do."""
        return EmbedRequest(
            model=self.model,
            texts=texts,
            encodings=encodings,
            input_type=self.input_type,
            prompt_name=self.prompt_name,
        )


class TextFields(RequestBody):
    """How texts become token ids, in vLLM's words: its clients send them to every server's `/v1/embeddings`."""

    use_activation: UseActivation = None
    truncate_prompt_tokens: TruncatePromptTokens = None
    truncation_side: Side = None
    add_special_tokens: bool | None = Field(
        None, description="Put the tokenizer's special tokens around: by default for texts, not for messages."
    )
    padding: Padding = None
    mm_processor_kwargs: OfImages = None


class ChatFields(RequestBody):
    """Conversations, and how they are written out."""

    messages: Messages | None = None
    add_generation_prompt: bool | None = Field(None, description="End messages with the start of an answer, or not.")
    continue_final_message: bool | None = Field(None, description="Leave the last message open.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Values that the checkpoint's chat template may ask for."
    )
    chat_template: ChatTemplate = None
    media_io_kwargs: OfImages = None

    def chat_options(self, param: str, *, add_generation_prompt: bool = False) -> ChatOptions:
        """Return how messages are written out. `add_generation_prompt` is the route's default for it."""
        generates = self.add_generation_prompt
        return ChatOptions(
            add_generation_prompt=add_generation_prompt if generates is None else generates,
            continue_final_message=self.continue_final_message is True,
            template_values=self.chat_template_kwargs or {},
            param=param,
        )


class TextsOrChats(TextFields, ChatFields):
    """Texts or conversations. Which of the two, `texts_or_chats` decides."""

    input: TextsOrIds | None = None

    def check_one_given(self) -> None:
        """Raise `InputError` unless exactly one of `input` and `messages` is there, with nothing of the other."""
        unused: tuple[str, ...]
        if self.messages is None:
            if self.input is None:
                raise InputError("`input` is required", param="input")
            unused = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")
        elif self.input is not None:
            raise InputError("give `input` or `messages`, not both", param="messages")
        else:
            unused = ("input_type", "prompt_name")
        for name in unused:
            if getattr(self, name, None):
                raise InputError(f"`{name}` is for {'messages' if self.messages is None else 'texts'}", param=name)

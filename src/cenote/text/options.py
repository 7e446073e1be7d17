"""What a request may ask of the text layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cenote.errors import InputError
from cenote.params import InputType

TruncationSide = Literal["left", "right"]
PairTruncation = Literal["longest_first", "only_second"]
_INPUT_TYPES: tuple[str, ...] = get_args(InputType)
_TRUNCATION_SIDES: tuple[str, ...] = get_args(TruncationSide)
_PAIR_TRUNCATIONS: tuple[str, ...] = get_args(PairTruncation)


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """How texts become sequences. `None` means what the checkpoint asks for.

    One prompt is put before each text: `prompt`, else the one named `prompt_name`, else the one that the checkpoint has
    for `input_type`, else its default. `raw` adds no prompt, no markers and no query expansion; special tokens stay.
    `add_special_tokens=False` leaves those of the tokenizer out. `truncate=False` refuses a text over the limit.
    `truncation_side` names the end that is cut; `max_length` lowers the model's limit, never raises it. `offsets` asks
    for character spans. `param` is the name that errors give to the texts.
    """

    input_type: InputType | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncate: bool = True
    truncation_side: TruncationSide | None = None
    raw: bool = False
    add_special_tokens: bool = True
    max_length: int | None = None
    offsets: bool = False
    param: str = "texts"

    def __post_init__(self) -> None:
        _one_of("input_type", self.input_type, _INPUT_TYPES)
        _one_of("truncation_side", self.truncation_side, _TRUNCATION_SIDES)
        _text("prompt", self.prompt)
        _text("prompt_name", self.prompt_name)
        _positive("max_length", self.max_length)


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How pairs of a query and a document become sequences.

    `max_query_tokens` and `max_document_tokens` cut each text on its own first. Of what is then still too long,
    `longest_first` shortens the longer text, then both; `only_second` shortens the document alone. The prompt goes
    before the query. `instruction` is for models whose prompt has a place for one.
    """

    instruction: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncate: bool = True
    truncation: PairTruncation = "longest_first"
    truncation_side: TruncationSide | None = None
    max_length: int | None = None
    max_query_tokens: int | None = None
    max_document_tokens: int | None = None
    query_param: str = "query"
    document_param: str = "documents"

    def __post_init__(self) -> None:
        _one_of("truncation", self.truncation, _PAIR_TRUNCATIONS)
        _one_of("truncation_side", self.truncation_side, _TRUNCATION_SIDES)
        for name in ("instruction", "prompt", "prompt_name"):
            _text(name, getattr(self, name))
        for name in ("max_length", "max_query_tokens", "max_document_tokens"):
            _positive(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """How conversations become sequences. `add_generation_prompt` ends them with the start of an assistant's message,
    `continue_final_message` leaves their last message open; at most one of the two. `template_values` are what the
    template may ask for beside the messages, by the names that it has for them.
    """

    add_generation_prompt: bool = False
    continue_final_message: bool = False
    template_values: Mapping[str, Any] = field(default_factory=dict)
    truncate: bool = True
    truncation_side: TruncationSide | None = None
    max_length: int | None = None
    param: str = "messages"

    def __post_init__(self) -> None:
        _one_of("truncation_side", self.truncation_side, _TRUNCATION_SIDES)
        _positive("max_length", self.max_length)
        if self.add_generation_prompt and self.continue_final_message:
            raise InputError(
                "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
            )


def _one_of(param: str, value: object, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InputError(f"{param} must be one of {', '.join(choices)}, not {value!r}", param=param)


def _text(param: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{param} must be a string, not {type(value).__name__}", param=param)


def _positive(param: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"{param} must be an integer of at least 1, not {value!r}", param=param)

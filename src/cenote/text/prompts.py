"""Which prompt goes before a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cenote.checkpoint.spec import TextSpec
from cenote.errors import InputError
from cenote.params import InputType

_NAMES_BY_INPUT_TYPE: dict[InputType, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""The names that sentence-transformers looks for, in its order (`encode_query`, `encode_document`)."""


class PromptChoice(Protocol):
    """The part of a request's options that chooses a prompt."""

    @property
    def prompt(self) -> str | None: ...
    @property
    def prompt_name(self) -> str | None: ...


def choose_prompt(spec: TextSpec, choice: PromptChoice, input_type: InputType | None = None) -> str:
    """Return the prompt of a request, `""` for none. Raise `InputError` where the name is unknown.

    An `input_type` that the checkpoint has no prompt for means no prompt: the default is not used then, as in
    sentence-transformers.
    """
    if choice.prompt is not None:
        return choice.prompt
    if choice.prompt_name is not None:
        return _named(spec.prompts, choice.prompt_name)
    if input_type is not None:
        names = _NAMES_BY_INPUT_TYPE[input_type]
        return next((spec.prompts[name] for name in names if name in spec.prompts), "")
    if spec.default_prompt_name is not None:
        return spec.prompts.get(spec.default_prompt_name, "")
    return ""


def _named(prompts: Mapping[str, str], name: str) -> str:
    if name not in prompts:
        known = ", ".join(sorted(prompts)) or "none"
        raise InputError(f"unknown prompt_name {name!r}; this model has: {known}", param="prompt_name")
    return prompts[name]

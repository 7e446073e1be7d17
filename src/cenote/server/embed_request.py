"""What is asked of the vectors of texts: the fields that bodies have in common, and the request that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from cenote.params import OutputDtype
from cenote.server.encodings import Encoding
from cenote.server.schemas import ModelName, PromptName, RequestBody
from cenote.text.long_texts import LongTexts
from cenote.text.options import TruncationSide


@dataclass(frozen=True, kw_only=True)
class EmbedRequest:
    """Texts, what is asked of their vectors, and the client's names of its fields, which errors use.

    `input_type` is any client's word for it. `encodings` are checked against the width of the vectors, not applied.
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

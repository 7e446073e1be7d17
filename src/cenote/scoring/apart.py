"""Queries and documents as sequences of their own, for models that embed them apart."""

from __future__ import annotations

from dataclasses import replace

from cenote.core import Core
from cenote.params import InputType
from cenote.scoring.request import ScoreRequest
from cenote.text.options import EncodeOptions
from cenote.text.tokenized import TokenizedText


def encode_apart(core: Core, request: ScoreRequest, input_type: InputType) -> list[TokenizedText]:
    """Return the sequences of the queries or of the documents, with the prompt and the markers of their type.

    A text without tokens becomes a space where the tokenizer adds none of its own: every document has a score.
    """
    if input_type == "query":
        texts, limit, param = request.queries, request.max_query_tokens, request.query_param
    else:
        texts, limit, param = request.documents, request.max_document_tokens, request.document_param
    capped = core.encoder.first_tokens(texts, limit)
    written = [text if text or core.encoder.adds_special_tokens else " " for text, _ in capped]
    sequences = core.encoder.encode(
        written,
        EncodeOptions(
            input_type=input_type,
            truncate=request.truncate,
            truncation_side=request.truncation_side,
            max_length=request.max_tokens,
            param=param,
        ),
    )
    return [
        replace(sequence, truncated=sequence.truncated or is_cut)
        for sequence, (_, is_cut) in zip(sequences, capped, strict=True)
    ]

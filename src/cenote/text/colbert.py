"""ColBERT's two encodings of a text: markers, lengths and query expansion (sentence-transformers 6.2, PyLate)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cenote.checkpoint.spec import ExpansionSpec
from cenote.params import InputType
from cenote.text.frame import Frame
from cenote.text.tokenized import TokenizedText


def marked_frame(frame: Frame, expansion: ExpansionSpec, input_type: InputType) -> Frame:
    """Return the frame with the marker of this input type behind the leading special tokens."""
    marker = expansion.query_marker_id if input_type == "query" else expansion.document_marker_id
    return frame if marker is None else frame.with_marker(marker)


def length_limit(expansion: ExpansionSpec, input_type: InputType) -> int | None:
    """Return the most tokens of a text of this type, special tokens and marker included; `None`: no own limit."""
    return expansion.query_length if input_type == "query" else expansion.document_length


def expand_query(query: TokenizedText, expansion: ExpansionSpec, max_length: int) -> TokenizedText:
    """Fill a query up with the mask token, where the checkpoint asks for it; longer queries stay as they are."""
    missing = min(expansion.fill_length or 0, max_length) - len(query)
    if not expansion.expand_queries or expansion.mask_token_id is None or missing <= 0:
        return query
    types = query.token_type_ids
    no_text = np.full((missing, 2), -1, np.int64)
    return replace(
        query,
        token_ids=np.append(query.token_ids, np.full(missing, expansion.mask_token_id, np.int64)),
        token_type_ids=None if types is None else np.append(types, np.zeros(missing, np.int64)),
        num_keys=len(query) + (missing if expansion.attend_to_expansion else 0),
        offsets=None if query.offsets is None else np.concatenate([query.offsets, no_text]),
    )

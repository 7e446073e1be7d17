"""What the text layer hands on: the ids of one sequence and the facts that the later layers need about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cenote.params import InputType

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedText:
    """One sequence, ready to be packed. `n` is its number of rows.

    `token_ids` int64 `[n]`. `token_type_ids` int64 `[n]`, or `None` where the model or the tokenizer has none (zeros).
    The first `num_keys` rows are visible to the others as keys; fewer than `n` only for ColBERT's expansion tokens that
    are not attended to. `truncated` is true exactly where tokens of the text were left out. The first
    `num_prompt_tokens` rows belong to the prompt, the special tokens before it included; 0 without a prompt.
    `offsets` int64 `[n, 2]` where they were asked for: start and end of each token in the caller's own string, in
    characters; `(-1, -1)` for tokens that stand for none of its text (special tokens, markers, the prompt).
    """

    token_ids: IntArray
    token_type_ids: IntArray | None
    num_keys: int
    truncated: bool
    num_prompt_tokens: int = 0
    input_type: InputType | None = None
    offsets: IntArray | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

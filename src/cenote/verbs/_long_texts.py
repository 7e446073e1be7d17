"""The sequences of a request whose texts may be longer than the model's limit, and the way back from them to texts."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from cenote.core import Core, usage
from cenote.outputs import Float32Array, Usage
from cenote.pooling.blocks import mean_of_blocks
from cenote.runtime.request import Answer
from cenote.text.blocks import Blocks
from cenote.text.inputs import Texts
from cenote.text.long_texts import LongTextPolicy
from cenote.text.options import EncodeOptions
from cenote.text.tokenized import TokenizedText


@dataclass(frozen=True)
class ReadTexts:
    """The `sequences` of one request's texts, in order: one for each, or as many as it has `blocks`."""

    sequences: list[TokenizedText]
    blocks: list[Blocks] | None = None

    def vectors(self, results: Many[npt.NDArray[np.float32]], *, normalize: bool) -> Float32Array:
        """Return `(n, D)`, one vector for each text, from one result for each sequence."""
        if self.blocks is None:
            return np.stack(results)
        bounds = pairwise(accumulate((len(text.sequences) for text in self.blocks), initial=0))
        return np.stack(
            [
                mean_of_blocks(results[start:stop], text.weights, normalize=normalize)
                for text, (start, stop) in zip(self.blocks, bounds, strict=True)
            ]
        )

    def usage(self, answer: Answer) -> Usage:
        """Return what the request cost: all tokens that were read, those of every block."""
        if self.blocks is None:
            return usage(self.sequences, answer)
        return Usage(
            num_tokens=[sum(map(len, text.sequences)) for text in self.blocks],
            truncated=[any(sequence.truncated for sequence in text.sequences) for text in self.blocks],
            queue_seconds=answer.queue_seconds,
            inference_seconds=answer.inference_seconds,
        )


def read_texts(core: Core, texts: Texts, options: EncodeOptions, policy: LongTextPolicy) -> ReadTexts:
    """Turn texts into sequences, those over the limit as `policy` says. Raises as `TextEncoder.encode` does."""
    if policy.kind == "chunk":
        blocks = core.encoder.encode_blocks(texts, options, overlap=policy.overlap)
        return ReadTexts([sequence for text in blocks for sequence in text.sequences], blocks)
    return ReadTexts(core.encoder.encode(texts, replace(options, truncate=policy.kind == "truncate")))

"""The sequences of a request whose texts may be longer than the model's limit, and the way back from them to texts."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from cenote.core import Core
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
    """The texts of one request, each as one or several blocks; `sequences` holds them all, in order."""

    texts: list[Blocks]

    @property
    def sequences(self) -> list[TokenizedText]:
        return [sequence for text in self.texts for sequence in text.sequences]

    def vectors(self, results: Many[npt.NDArray[np.float32]], *, normalize: bool) -> Float32Array:
        """Return `(n, D)`, one vector for each text, from one result for each sequence."""
        bounds = pairwise(accumulate((len(text.sequences) for text in self.texts), initial=0))
        return np.stack(
            [
                mean_of_blocks(results[start:stop], text.weights, normalize=normalize)
                for text, (start, stop) in zip(self.texts, bounds, strict=True)
            ]
        )

    def usage(self, answer: Answer) -> Usage:
        """Return what the request cost: all tokens that were read, those of every block."""
        return Usage(
            num_tokens=[sum(map(len, text.sequences)) for text in self.texts],
            truncated=[any(sequence.truncated for sequence in text.sequences) for text in self.texts],
            queue_seconds=answer.queue_seconds,
            inference_seconds=answer.inference_seconds,
        )


def read_texts(core: Core, texts: Texts, options: EncodeOptions, policy: LongTextPolicy) -> ReadTexts:
    """Turn texts into sequences, those over the limit as `policy` says. Raises as `TextEncoder.encode` does."""
    if policy.kind == "chunk":
        return ReadTexts(core.encoder.encode_blocks(texts, options, overlap=policy.overlap))
    sequences = core.encoder.encode(texts, replace(options, truncate=policy.kind == "truncate"))
    return ReadTexts([Blocks(sequences=[sequence], weights=[1]) for sequence in sequences])

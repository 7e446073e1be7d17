"""How fast an engine embeds a list of texts, in process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cenote.engine import Engine

WARMUP_TEXTS = 64


@dataclass(frozen=True, kw_only=True)
class OfflineResult:
    """The seconds of each round over all texts. Speeds are those of the median round."""

    num_texts: int
    num_tokens: int
    seconds: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, for programs."""
        median = statistics.median(self.seconds)
        return {
            "texts": self.num_texts,
            "tokens": self.num_tokens,
            "rounds": len(self.seconds),
            "tokens_per_second": self.num_tokens / median,
            "tokens_per_second_of_slowest_round": self.num_tokens / max(self.seconds),
            "tokens_per_second_of_fastest_round": self.num_tokens / min(self.seconds),
            "texts_per_second": self.num_texts / median,
            "seconds": list(self.seconds),
        }


def run_offline(engine: Engine, texts: Sequence[str], *, rounds: int, seconds: float) -> OfflineResult:
    """Embed `texts` after a warm-up, `rounds` times at most; no round but the first begins after `seconds`."""
    engine.embed(list(texts[:: max(1, len(texts) // WARMUP_TEXTS)]))
    end = time.perf_counter() + seconds
    taken: list[float] = []
    num_tokens = 0
    while not taken or (len(taken) < rounds and time.perf_counter() < end):
        start = time.perf_counter()
        num_tokens = sum(engine.embed(list(texts)).num_tokens)
        taken.append(time.perf_counter() - start)
    return OfflineResult(num_texts=len(texts), num_tokens=num_tokens, seconds=tuple(taken))

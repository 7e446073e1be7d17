"""What `cenote bench` measures: an engine in this process, or a server at an address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
from cyclopts import Group, Parameter

from cenote.cli._pipeline import rows_of
from cenote.config import EngineOptions, option
from cenote.errors import CenoteError, OptionError

if TYPE_CHECKING:
    from cenote.bench.connection import Target
    from cenote.bench.load import Load


@Parameter(name="*", group=Group("Text options", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class BenchTexts:
    """Which texts are sent: made up, or the caller's own."""

    corpus: Literal["short", "query", "passage", "mixed", "long"] = option(
        "mixed", help="Length of made-up texts: about 12, 25, 150, 72 (very different ones) or 305 tokens."
    )
    texts: int = option(512, help="How many texts are made up.")
    file: Path | None = option(None, help="Take the texts from this file, one a line, instead.")
    seed: int = option(0, help="Seed of made-up texts and of arrivals.")

    def read(self) -> list[str]:
        """Return the texts. Raises `OptionError` where there are none."""
        from cenote.bench.corpora import make_texts

        if self.file is None:
            texts = make_texts(self.corpus, self.texts, self.seed)
        else:
            with ExitStack() as stack:
                texts = [row.text for row in rows_of((), self.file, False, stack) if row.text.strip()]
        if not texts:
            raise OptionError(f"{self.file} has no text" if self.file else "--texts must be at least 1")
        return texts


@dataclass(frozen=True, kw_only=True)
class OfflineJob:
    """Embed texts in this process."""

    model: str
    engine: EngineOptions
    rounds: int
    seconds: float

    def run(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the figures."""
        from cenote.bench.offline import run_offline
        from cenote.engine import Engine

        with Engine(self.model, self.engine) as engine:
            return run_offline(engine, texts, rounds=self.rounds, seconds=self.seconds).as_dict()


@dataclass(frozen=True, kw_only=True)
class OnlineJob:
    """Send texts to a server's OpenAI route: for each number of clients, or for each rate of arrivals."""

    model: str
    url: str
    api_key: str | None
    batch: int
    encoding_format: str
    clients: tuple[int, ...]
    rates: tuple[float, ...]
    seconds: float
    seed: int

    def run(self, texts: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """Give the figures of each load as it is done, for programs and for people.

        Raises `CenoteError` where the server does not answer as OpenAI's route does.
        """
        from cenote.bench.connection import parse_target
        from cenote.bench.load import run_load
        from cenote.bench.probe import probe
        from cenote.bench.report import OnlineResult

        bodies = self._bodies(texts)
        target = parse_target(self.url, self.api_key)
        probe(target, self.url, bodies[0])
        for load in self._loads(target, bodies):
            done = OnlineResult(load=load, result=run_load(load), texts_per_request=self.batch)
            yield done.as_dict(), done.as_text()

    def _bodies(self, texts: Sequence[str]) -> list[bytes]:
        """Return a body for each `batch` texts; what is left over is not sent, so that all are of one size."""
        if not 1 <= self.batch <= len(texts):
            raise OptionError(f"--batch is {self.batch}, but must be at least 1 and at most the {len(texts)} texts")
        shared = {"model": self.model} | ({"encoding_format": "base64"} if self.encoding_format == "base64" else {})
        batches = [list(texts[at : at + self.batch]) for at in range(0, len(texts) - self.batch + 1, self.batch)]
        return [orjson.dumps({**shared, "input": one[0] if self.batch == 1 else one}) for one in batches]

    def _loads(self, target: Target, bodies: list[bytes]) -> Iterator[Load]:
        from cenote.bench.load import Load

        loops: list[tuple[int, float | None]] = [(1, rate) for rate in self.rates]
        for num_clients, rate in loops or [(number, None) for number in self.clients]:
            yield Load(
                **{name: getattr(target, name) for name in ("host", "port", "path", "headers", "tls")},
                bodies=bodies,
                num_clients=num_clients,
                rate=rate,
                seed=self.seed,
                seconds=self.seconds,
            )


def check_answers(figures: Sequence[dict[str, Any]]) -> None:
    """Raise `CenoteError` for a load of which no request was answered."""
    for row in figures:
        if not row["successful_requests"]:
            how = f"{row['clients']} clients" if row["request_rate"] is None else f"{row['request_rate']} requests/s"
            why = row["first_failure"] or "none was due or answered in the measured time; try more --seconds"
            raise CenoteError(f"with {how} no request was answered: {why}")

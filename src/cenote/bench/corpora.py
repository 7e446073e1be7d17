"""Made-up texts of known length, the same on every machine.

The words and the sentence patterns are ours; everything else is a seeded draw. Lengths are given in words; one
word is about 1.3 tokens of BERT's English vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

NOUNS = (
    "river harbour engine market lantern bridge ticket doctor garden winter violin kitchen border teacher island "
    "budget signal contract forest machine window letter planet captain recipe battery statue village archive "
    "compass reservoir sediment turbine ledger parliament tenant molecule glacier orchard antenna subsidy carburettor "
    "stalactite aquifer enzyme algorithm dividend chlorophyll cartographer limestone"
).split()
ADJECTIVES = (
    "old quiet bright heavy narrow early public broken distant careful green hollow sudden plain stubborn salty "
    "northern modern fragile crowded expensive invisible provisional crystalline subterranean quarterly"
).split()
VERBS = (
    "reached moved opened repaired measured followed crossed painted warmed counted borrowed described replaced "
    "carried delayed ignored examined surrounded financed contradicted recalibrated"
).split()
ADVERBS = ("slowly", "again", "yesterday", "in silence", "at noon", "without a reason", "before dawn", "for years")
LINKS = ("because", "although", "while", "until", "so", "and then", "but")
NAMES = "Amara Lindqvist Tomasz Okafor Priya Delacroix Hiroshi Novak Fatima Brennan".split()


@dataclass(frozen=True)
class Lengths:
    """A log-normal draw of words for each text, kept between `shortest` and `longest`."""

    median: float
    sigma: float
    shortest: int
    longest: int

    def draw(self, rng: random.Random) -> int:
        words = self.median * rng.lognormvariate(0.0, self.sigma)
        return round(min(max(words, self.shortest), self.longest))


CORPORA: dict[str, Lengths] = {
    "short": Lengths(median=7, sigma=0.35, shortest=2, longest=20),
    "query": Lengths(median=17, sigma=0.3, shortest=8, longest=40),
    "passage": Lengths(median=116, sigma=0.15, shortest=80, longest=170),
    "mixed": Lengths(median=42, sigma=0.8, shortest=3, longest=165),
    "skewed": Lengths(median=7, sigma=1.4, shortest=2, longest=165),
    "long": Lengths(median=230, sigma=0.2, shortest=150, longest=400),
}


def make_texts(corpus: str, num_texts: int = 512, seed: int = 0) -> list[str]:
    """Return `num_texts` texts of a corpus named in `CORPORA`; equal arguments give equal texts."""
    rng = random.Random(f"{corpus}-{seed}")
    return [_text(rng, CORPORA[corpus].draw(rng)) for _ in range(num_texts)]


def _text(rng: random.Random, num_words: int) -> str:
    words: list[str] = []
    sentences = _sentences(rng)
    while len(words) < num_words:
        words += next(sentences).split()
    return " ".join(words[:num_words]).rstrip(",.;") + "."


def _sentences(rng: random.Random) -> Iterator[str]:
    while True:
        clause = _clause(rng)
        if rng.random() < 0.4:
            clause += f", {rng.choice(LINKS)} {_clause(rng)}"
        yield clause[0].upper() + clause[1:] + "."


def _clause(rng: random.Random) -> str:
    subject = rng.choice(NAMES) if rng.random() < 0.25 else f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    thing = f"{rng.randint(2, 2000)} {rng.choice(NOUNS)}s" if rng.random() < 0.1 else f"the {rng.choice(NOUNS)}"
    clause = f"{subject} {rng.choice(VERBS)} {thing}"
    return f"{clause} {rng.choice(ADVERBS)}" if rng.random() < 0.5 else clause

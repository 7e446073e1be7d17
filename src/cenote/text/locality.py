"""Where a long text may be cut so that the tokens on one side are those of the whole text.

Truncation needs a few hundred tokens; tokenising a megabyte for them would cost a second. A cut between a letter and a
space that is followed by a letter is safe where nothing in the tokenizer looks across such a boundary:

- added tokens: none holds a letter followed by a space;
- normaliser: works on single characters, combining sequences, runs of spaces, or patterns without letters;
- pre-tokenizer: ends a piece between a letter and a space, and chose it without looking further;
- or, without such a pre-tokenizer, the model: no token holds a letter followed by the mark that stands for a space.

The tail behind a cut is that of the whole text where, moreover, nothing is done to the start of a text alone. What is
not known to behave so is not cut: such texts are tokenised whole. Letters are those of scripts with simple case and no
combining behaviour, so that no Unicode rule joins them with what follows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, models

_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿΑ-ΡΣ-Ωα-ωА-Яа-я"
_CUT = re.compile(rf"(?<=[{_LETTERS}]) (?=[{_LETTERS}])")
_LETTER = re.compile(rf"[{_LETTERS}]")
_LETTER_THEN_SPACE = re.compile(rf"[{_LETTERS}]\s")
_LETTER_THEN_MARK = re.compile(rf"[{_LETTERS}]▁")
_WINDOW = 4096

_LOCAL_NORMALIZERS = frozenset(
    {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Strip"}
    | {"StripAccents"}
)
_LOCAL_REPLACEMENTS = frozenset({r" {2,}", r"\s+", r"\s{2,}", r"\n", r"\n+", r"\s{2,}|[\n\r\t]"})
"""Regular expressions of `Replace` that match nothing but white space."""
_SPACES = ({"String": " "}, {"Regex": r"\s+"})

_SPLITTING = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
_LOCAL_PRE_TOKENIZERS = frozenset({"Punctuation", "Digits", "ByteLevel", "Metaspace"}) | _SPLITTING

_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPLITTING_PATTERNS = frozenset(
    {
        rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_TAIL}",
        rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_TAIL}",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    }
)
"""Split patterns of Qwen, Llama 3 and GPT-2: a run of letters is a match of its own and ends where the letters end."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Which side of a cut keeps its tokens."""

    head: bool
    tail: bool


def find_cut(text: str, at_least: int) -> int | None:
    """Return the first cut at or after this position, in characters, or `None`."""
    match = _CUT.search(text, at_least)
    return match.start() if match else None


def find_cut_before(text: str, at_most: int) -> int | None:
    """Return a late cut at or before this position, in characters, or `None`."""
    window = _WINDOW
    while at_most > 0:
        matches = list(_CUT.finditer(text, max(0, at_most - window), at_most + 2))
        if matches:
            return matches[-1].start()
        if window >= at_most:
            return None
        window *= 4
    return None


def read_locality(backend: Tokenizer) -> Locality:
    """Find out what a cut leaves unchanged in this tokenizer."""
    normalizer = _steps(backend.normalizer, "normalizers")
    added = backend.get_added_tokens_decoder().values()
    head = (
        not any(_LETTER_THEN_SPACE.search(token.content) for token in added)
        and all(_is_local_normalizer(step) for step in normalizer)
        and _pieces_end_at_cut(backend, normalizer)
    )
    starts_alike = not any(step["type"] == "Prepend" or step.get("strip_left") for step in normalizer)
    return Locality(head=head, tail=head and starts_alike and not any(token.rstrip for token in added))


def _steps(component: Any, key: str) -> list[dict[str, Any]]:
    if component is None:
        return []
    described: dict[str, Any] = json.loads(component.__getstate__())
    return _flatten(described, key)


def _flatten(described: dict[str, Any], key: str) -> list[dict[str, Any]]:
    if described["type"] != "Sequence":
        return [described]
    return [step for part in described[key] for step in _flatten(part, key)]


def _is_local_normalizer(step: dict[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _LOCAL_NORMALIZERS
    if regex := step["pattern"].get("Regex"):
        return regex in _LOCAL_REPLACEMENTS
    return not _LETTER.search(step["pattern"]["String"])


def _pieces_end_at_cut(backend: Tokenizer, normalizer: list[dict[str, Any]]) -> bool:
    marked = any(
        step["type"] == "Replace" and step["pattern"] in _SPACES and step["content"] != " " for step in normalizer
    )
    steps = _steps(backend.pre_tokenizer, "pretokenizers")
    if any(_ends_pieces(step, marked=marked) for step in steps):
        return all(step["type"] in _LOCAL_PRE_TOKENIZERS or _ends_pieces(step, marked=False) for step in steps)
    marked_later = any(step["type"] == "Metaspace" for step in steps)
    return (marked or marked_later) and all(map(_splits_nothing, steps)) and _model_keeps_words_apart(backend)


def _splits_nothing(step: dict[str, Any]) -> bool:
    """Metaspace that only marks, or Gemma's split at spaces, of which the normaliser has left none."""
    if step["type"] == "Split":
        return bool(step["pattern"] == {"String": " "})
    return step["type"] == "Metaspace" and not step.get("split", True)


def _ends_pieces(step: dict[str, Any], *, marked: bool) -> bool:
    """The step always ends a piece at a cut. `marked`: the normaliser has put marks in place of the spaces."""
    if step["type"] == "Metaspace":
        return bool(step.get("split", True))
    if marked:
        return False
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True))
    if step["type"] == "Split":
        isolates = step["behavior"] == "Isolated" and not step["invert"]
        return isolates and step["pattern"].get("Regex") in _SPLITTING_PATTERNS
    return step["type"] in _SPLITTING


def _model_keeps_words_apart(backend: Tokenizer) -> bool:
    """BPE over the whole text: a merge across a cut would make a token like `a▁b`, and marks are no unknowns."""
    if not isinstance(backend.model, models.BPE) or backend.model.dropout:
        return False
    vocab = backend.get_vocab()
    return "▁" in vocab and not any(_LETTER_THEN_MARK.search(token) for token in vocab)

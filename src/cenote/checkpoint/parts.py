"""What a recogniser finds: the parts of a `ModelSpec` that say what the model gives and how texts go in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cenote.checkpoint.spec import (
    ClassifySpec,
    EmbedSpec,
    ExpansionSpec,
    Fact,
    LexicalSpec,
    ListwiseSpec,
    MultiVectorSpec,
    SpladeSpec,
    TokenClassifySpec,
)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One optional part for each task; at least one is set.

    `prompts` replaces the prompts of `config_sentence_transformers.json`.
    """

    embed: EmbedSpec | None = None
    embed_sparse: SpladeSpec | LexicalSpec | None = None
    token_embed: MultiVectorSpec | None = None
    classify: ClassifySpec | None = None
    token_classify: TokenClassifySpec | None = None
    listwise: ListwiseSpec | None = None
    expansion: ExpansionSpec | None = None
    prompts: Mapping[str, str] | None = None
    facts: tuple[Fact, ...] = ()

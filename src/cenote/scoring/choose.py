"""Which kind of scorer a model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cenote.checkpoint.spec import ModelSpec
from cenote.config import as_option
from cenote.core import Core, Pending
from cenote.errors import UnsupportedTaskError
from cenote.outputs import RerankKind
from cenote.scoring.cosine import score_cosine
from cenote.scoring.late_interaction import score_late_interaction
from cenote.scoring.listwise import score_listwise
from cenote.scoring.pairs import score_pairs
from cenote.scoring.request import PairScores, ScoreRequest

Scorer = Callable[[Core, ScoreRequest], Pending[PairScores]]

_SCORERS: Mapping[RerankKind, Scorer] = {
    "cross_encoder": score_pairs,
    "llm_reranker": score_pairs,
    "listwise": score_listwise,
    "late_interaction": score_late_interaction,
    "cosine": score_cosine,
}


def score(core: Core, request: ScoreRequest) -> Pending[PairScores]:
    """Score the pairs of `request` as one request of the engine. Raises `UnsupportedTaskError` where a model cannot."""
    return _SCORERS[scoring_kind(core.spec)](core, request)


def scoring_kind(spec: ModelSpec) -> RerankKind:
    """Return how the model scores a pair: what reads query and document together comes before what embeds them."""
    if spec.classify is not None and spec.classify.scores_pairs:
        return "cross_encoder" if spec.text.pair_prompt is None else "llm_reranker"
    if spec.listwise is not None:
        return "listwise"
    if spec.token_embed is not None:
        return "late_interaction"
    if spec.embed is not None:
        return "cosine"
    raise UnsupportedTaskError(f"model {spec.name!r} {_why_not(spec)}", param="model")


def reads_pairs(spec: ModelSpec) -> bool:
    """Return whether the model is made for scoring: it reads query and document together."""
    return spec.listwise is not None or (spec.classify is not None and spec.classify.scores_pairs)


def _why_not(spec: ModelSpec) -> str:
    if spec.classify is None:
        return f"scores no pairs; it offers: {', '.join(spec.tasks)}"
    if spec.classify.kind == "reward":
        why = "is a reward model, which scores one conversation and not a query with its documents: use reward"
        if not spec.architecture.endswith("ForSequenceClassification"):
            return why
        return f"{why}, or start it with {as_option('task', 'rerank')} if it was trained to score pairs"
    labels = ", ".join(spec.classify.labels)
    return f"gives {spec.classify.num_labels} labels ({labels}) and not one relevance score: use classify"

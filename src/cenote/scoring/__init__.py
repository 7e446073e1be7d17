"""How relevant documents are to a query: one file for each kind of model, one choice between them."""

from cenote.scoring.choose import reads_pairs, score
from cenote.scoring.request import PairScores, ScoreRequest

__all__ = ["PairScores", "ScoreRequest", "reads_pairs", "score"]

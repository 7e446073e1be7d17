"""How relevant documents are to a query: one file for each kind of model, one choice between them."""

from cenote.scoring.choose import reads_pairs, score
from cenote.scoring.request import PairScores, ScoreRequest, check_positive

__all__ = ["PairScores", "ScoreRequest", "check_positive", "reads_pairs", "score"]

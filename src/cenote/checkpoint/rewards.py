"""Reward models that bring a head of their own: Qwen's outcome and process reward models."""

from __future__ import annotations

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import ClassifySpec, Fact, TokenClassifySpec

STEP_TOKEN = "<extra_0>"  # noqa: S105 - the separator of reasoning steps, not a secret
STEP_TOKEN_ID = 151651
"""`<extra_0>` in the vocabulary of Qwen2.5-Math-PRM."""


def recognise(checkpoint: Checkpoint) -> Parts | None:
    """Recognise `Qwen2ForRewardModel` and `Qwen2ForProcessRewardModel`.

    Both put Linear, ReLU, Linear (`score.0`, `score.2`) on every token. The outcome is the last token's single column,
    raw unless a request asks for its sigmoid; a process reward is the softmax over two columns (bad, good) at each
    step's closing token, or the sigmoid of one of them where a request chooses it.
    """
    fact = Fact(what="reward", value=checkpoint.architecture, source="config.json")
    if checkpoint.architecture == "Qwen2ForProcessRewardModel":
        steps = TokenClassifySpec(
            kind="process_reward",
            num_labels=2,
            labels=("bad", "good"),
            activation="auto",
            step_tag_id=_step_tag(checkpoint),
        )
        return Parts(token_classify=steps, facts=(fact,))
    if checkpoint.architecture == "Qwen2ForRewardModel":
        labels = ("reward",)
        outcome = ClassifySpec(kind="reward", num_labels=1, labels=labels, activation="auto", use_activation=False)
        tokens = TokenClassifySpec(
            kind="token_labels", num_labels=1, labels=labels, activation="auto", use_activation=False
        )
        return Parts(classify=outcome, token_classify=tokens, facts=(fact,))
    return None


def _step_tag(checkpoint: Checkpoint) -> int:
    found = checkpoint.vocabulary.token_id(STEP_TOKEN)
    return STEP_TOKEN_ID if found is None else found

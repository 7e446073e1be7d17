"""`engine.reward`: how good an answer is, as a whole or step by step."""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np
import numpy.typing as npt

from cenote.config import as_option
from cenote.core import Core, Pending, usage
from cenote.errors import InputError, UnsupportedTaskError
from cenote.outputs import Answers, Scores
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.text.chat import Messages
from cenote.text.inputs import Texts
from cenote.text.options import ChatOptions, EncodeOptions
from cenote.text.tokenized import TokenizedText

StepRewards = npt.NDArray[np.float32]
Rewards = Scores | Answers[StepRewards]


def reward(core: Core, texts: Texts | Many[Messages], *, param: str = "texts") -> Pending[Rewards]:
    """Score each text, or each conversation written out by the checkpoint's own chat template.

    An outcome reward model gives one raw number for each `(n,)`. A process reward model gives an array for each: the
    probability of each step being good, in the order of the step tags in the text (`(0,)` where it has none); a
    model of more or other columns than bad and good gives `(steps, columns)`. A text over the limit is refused, since
    a cut one would be scored as another text.
    """
    if core.spec.token_classify is not None and core.spec.token_classify.kind == "process_reward":
        return _process(core, texts, param)
    if core.spec.classify is None or core.spec.classify.kind != "reward":
        raise UnsupportedTaskError(f"model {core.info.name!r} is not a reward model{_remedy(core)}", param="task")
    return _outcome(core, texts, param)


def _remedy(core: Core) -> str:
    spec = core.spec
    if spec.classify is None or spec.classify.num_labels > 1 or spec.classify.kind == "llm_reranker":
        return ""
    return f"; if its score is a reward and no relevance, start it with {as_option('task', 'reward')}"


def _outcome(core: Core, texts: Texts | Many[Messages], param: str) -> Pending[Rewards]:
    tokenized = _tokenize(core, texts, param)
    future = core.submit(tokenized, core.task_params([PoolingParams(task="classify")], tokenized))

    def assemble(answer: Answer) -> Rewards:
        values = np.array([row[0] for row in answer.arrays("classify")], dtype=np.float32)
        return Scores.wrap(values, usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)


def _process(core: Core, texts: Texts | Many[Messages], param: str) -> Pending[Rewards]:
    assert core.spec.token_classify is not None
    binary = core.spec.token_classify.num_labels == 2
    tokenized = _tokenize(core, texts, param)
    future = core.submit(tokenized, core.task_params([PoolingParams(task="token_classify")], tokenized))

    def assemble(answer: Answer) -> Rewards:
        rows = answer.arrays("token_classify")
        return Answers([row[:, 1] if binary else row for row in rows], usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)


def _tokenize(core: Core, texts: Texts | Many[Messages], param: str) -> list[TokenizedText]:
    chats = _chats(texts)
    if chats is None:
        return core.encoder.encode(texts, EncodeOptions(truncate=False, param=param))  # type: ignore[arg-type]
    if not chats:
        raise InputError(f"{param} is empty: pass at least one conversation", param=param)
    return core.encoder.encode_chats(chats, ChatOptions(truncate=False, param=param))


def _chats(texts: object) -> list[Messages] | None:
    """Return the conversations of `texts`, one or a list of them; `None` where it holds texts or token ids."""
    if not isinstance(texts, list | tuple) or not texts:
        return None
    if isinstance(texts[0], dict):
        return [texts]
    if isinstance(texts[0], list | tuple) and texts[0] and isinstance(texts[0][0], dict):
        return list(texts)
    return None

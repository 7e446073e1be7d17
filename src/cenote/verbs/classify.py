"""`engine.classify`: the labels of each text, of pairs, or of labels that the caller makes up."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cenote.core import Core, Pending, usage
from cenote.errors import InputError, UnsupportedTaskError
from cenote.outputs import Answers, Classification, Usage
from cenote.params import PoolingParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.options import EncodeOptions, PairOptions, TruncationSide
from cenote.text.tokenized import TokenizedText

ENTAILMENT = "entail"
"""How the label of an NLI checkpoint begins that says: the second text follows from the first."""


def classify(
    core: Core,
    texts: Texts | Many[str | tuple[str, str]],
    *,
    raw_scores: bool | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
    max_tokens: int | None = None,
    add_special_tokens: bool = True,
    param: str = "texts",
) -> Pending[Answers[Classification]]:
    """Label each text, or each pair of texts, with the checkpoint's own labels. A list may hold texts and pairs.

    Scores are what the checkpoint asks for: probabilities (softmax over the labels, or a sigmoid for each), or the
    logits where it is a reward model. `raw_scores` gives the logits, or where it is false the probabilities, of any
    model. `.label` is the one with the highest score. A text over the limit, which `max_tokens` lowers, is cut at
    `truncation_side` or, where `truncate` is off, refused. `add_special_tokens` may be off for single texts: those of a
    pair say where one text ends.
    """
    params = PoolingParams(task="classify", use_activation=None if raw_scores is None else not raw_scores)
    core.check(params)
    options = EncodeOptions(
        truncate=truncate,
        truncation_side=truncation_side,
        max_length=max_tokens,
        add_special_tokens=add_special_tokens,
        param=param,
    )
    tokenized = _tokenize(core, texts, options)
    future = core.submit(tokenized, core.task_params([params], tokenized))
    assert core.spec.classify is not None
    labels = core.spec.classify.labels

    def assemble(answer: Answer) -> Answers[Classification]:
        rows = [_classification(labels, row) for row in answer.arrays("classify")]
        return Answers(rows, usage(tokenized, answer))

    return Pending(future=future, assemble=assemble)


def zero_shot(
    core: Core,
    texts: str | Many[str],
    labels: Many[str],
    *,
    hypothesis_template: str = "This example is {}.",
    multi_label: bool = False,
    param: str = "texts",
) -> Pending[Answers[Classification]]:
    """Label each text with `labels` of the caller's own, by a checkpoint that was trained on entailment (NLI).

    Each label becomes the hypothesis that the text should entail. Scores are the softmax over the labels' entailment
    logits; with `multi_label` each label on its own, entailment against contradiction. Source: the zero-shot pipeline
    of transformers. Raises `UnsupportedTaskError` where the model has no label for entailment.
    """
    params = PoolingParams(task="classify", use_activation=False)
    core.check(params)
    entailment, contradiction = _nli_columns(core)
    texts = _strings(texts, param)
    hypotheses = _hypotheses(labels, hypothesis_template)
    premises = [text for text in texts for _ in hypotheses]
    options = PairOptions(query_param=param, document_param="labels")
    tokenized = core.encoder.encode_pairs(premises, hypotheses * len(texts), options)
    future = core.submit(tokenized, core.task_params([params], tokenized))

    def assemble(answer: Answer) -> Answers[Classification]:
        logits = np.stack(answer.arrays("classify")).reshape(len(texts), len(labels), -1)
        if multi_label:
            scores = _softmax(logits[:, :, [contradiction, entailment]])[:, :, 1]
        else:
            scores = _softmax(logits[:, :, entailment])
        return Answers(
            [_classification(labels, row) for row in scores], _per_text(usage(tokenized, answer), len(labels))
        )

    return Pending(future=future, assemble=assemble)


def _per_text(of_pairs: Usage, num_labels: int) -> Usage:
    """Add up what the pairs of each text cost."""
    texts = [slice(start, start + num_labels) for start in range(0, len(of_pairs.num_tokens), num_labels)]
    return replace(
        of_pairs,
        num_tokens=[sum(of_pairs.num_tokens[text]) for text in texts],
        truncated=[any(of_pairs.truncated[text]) for text in texts],
    )


def _tokenize(core: Core, texts: Any, options: EncodeOptions) -> list[TokenizedText]:
    if _has_pairs(texts) and not _are_pairs(texts):
        each = [replace(options, param=f"{options.param}[{index}]") for index in range(len(texts))]
        return [_tokenize(core, _alone(text), one)[0] for text, one in zip(texts, each, strict=True)]
    if not _are_pairs(texts):
        return core.encoder.encode(texts, options)
    if not options.add_special_tokens:
        raise InputError("a pair needs the special tokens between its texts", param="add_special_tokens")
    first, second = [pair[0] for pair in texts], [pair[1] for pair in texts]
    of_pairs = PairOptions(
        truncate=options.truncate,
        truncation_side=options.truncation_side,
        max_length=options.max_length,
        query_param=options.param,
        document_param=options.param,
    )
    return core.encoder.encode_pairs(first, second, of_pairs)


def _are_pairs(texts: Any) -> bool:
    """Return whether `texts` are pairs of strings; a pair is a tuple or a list of two strings."""
    return isinstance(texts, list | tuple) and bool(texts) and all(map(_is_pair, texts))


def _has_pairs(texts: Any) -> bool:
    return isinstance(texts, list | tuple) and any(map(_is_pair, texts))


def _is_pair(text: Any) -> bool:
    return isinstance(text, list | tuple) and len(text) == 2 and all(isinstance(string, str) for string in text)


def _alone(text: Any) -> Any:
    """Return one of several texts as an argument of its own."""
    return [text] if _is_pair(text) else text


def _classification(labels: Many[str], row: npt.NDArray[Any]) -> Classification:
    scores = {label: float(score) for label, score in zip(labels, row, strict=True)}
    best = labels[int(np.argmax(row))]
    return Classification(label=best, score=scores[best], scores=scores)


def _strings(texts: object, param: str) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if not isinstance(texts, list | tuple) or not texts:
        raise InputError(f"{param} must be a string or a list of strings, at least one", param=param)
    return list(texts)


def _nli_columns(core: Core) -> tuple[int, int]:
    assert core.spec.classify is not None
    names = [label.lower() for label in core.spec.classify.labels]
    entailment = [i for i, name in enumerate(names) if name.startswith(ENTAILMENT)]
    contradiction = [i for i, name in enumerate(names) if name.startswith(("contra", "not_entail"))]
    if len(entailment) != 1 or len(contradiction) != 1:
        raise UnsupportedTaskError(
            f"zero-shot labels need a checkpoint trained on entailment; the labels of {core.info.name!r} are: "
            f"{', '.join(core.spec.classify.labels)}",
            param="labels",
        )
    return entailment[0], contradiction[0]


def _hypotheses(labels: Many[str], template: str) -> list[str]:
    if isinstance(labels, str) or not labels:
        raise InputError("labels must be a list of at least one label", param="labels")
    if len(set(labels)) < len(labels):
        raise InputError("labels has a label twice", param="labels")
    if template.format("a") == template.format("b"):
        raise InputError(f"the template {template!r} has no {{}} for the label", param="hypothesis_template")
    return [template.format(label) for label in labels]


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

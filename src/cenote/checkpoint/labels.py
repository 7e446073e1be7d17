"""Classification heads: labels and scores of texts and of tokens, and the activation that belongs to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import activation_name
from cenote.checkpoint.families import family_of
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import ClassifySpec, Fact, TokenClassifySpec
from cenote.config import as_option
from cenote.errors import CheckpointError

Kind = Literal["classifier", "cross_encoder", "reward"]

REWARD_BY_DEFAULT = (
    "one column of a decoder is a reward unless its files, or "
    f"{as_option('task', 'rerank')}, say that it is the relevance of a pair"
)
_HEAD_WEIGHTS = ("classifier.weight", "classifier.out_proj.weight", "score.weight")


def sequence_classification(checkpoint: Checkpoint) -> Parts | None:
    """Recognise `*ForSequenceClassification`: a cross-encoder, a reward model or a classifier.

    One column is a cross-encoder's relevance on an encoder, and a reward on a decoder that sentence-transformers did
    not save, unless the option task says which; more columns are labels.
    """
    if not checkpoint.architecture.endswith("ForSequenceClassification"):
        return None
    _refuse_other_modules(checkpoint)
    labels = read_labels(checkpoint)
    kind = _kind(checkpoint, len(labels))
    activation, source = activation_of(checkpoint, kind, len(labels))
    classify = ClassifySpec(
        kind=kind,
        num_labels=len(labels),
        labels=labels,
        activation=activation,
        use_activation=not gives_logits(checkpoint, kind, len(labels)),
        pad_token_id=checkpoint.config.get("pad_token_id") if _is_causal(checkpoint) else None,
        prompt_family="chat-template" if _templated(checkpoint) else None,
    )
    facts = (
        Fact(what="classify", value=f"{kind}, {len(labels)} column(s)", source=_why(checkpoint, kind)),
        _activation_fact(activation, source, classify.use_activation),
    )
    return Parts(classify=classify, facts=facts)


def token_classification(checkpoint: Checkpoint) -> Parts | None:
    """Recognise `*ForTokenClassification`."""
    if not checkpoint.architecture.endswith("ForTokenClassification"):
        return None
    labels = read_labels(checkpoint)
    activation, source = activation_of(checkpoint, "classifier", len(labels))
    tokens = TokenClassifySpec(
        kind="token_labels",
        num_labels=len(labels),
        labels=labels,
        activation=activation,
        use_activation=not gives_logits(checkpoint, "classifier", len(labels)),
    )
    facts = (
        Fact(what="token_classify", value=f"{len(labels)} labels", source=f"config.json, {checkpoint.architecture}"),
        _activation_fact(activation, source, tokens.use_activation),
    )
    return Parts(token_classify=tokens, facts=facts)


def read_labels(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the label of each column, checked against the head's rows where the weights say them.

    transformers leaves `id2label` out where it is the default: two labels.
    """
    id2label = checkpoint.config.get("id2label")
    if id2label is None:
        id2label = {index: f"LABEL_{index}" for index in range(int(checkpoint.config.get("num_labels", 2)))}
    try:
        by_column = {int(key): str(label) for key, label in id2label.items()}
    except (AttributeError, ValueError) as error:
        raise CheckpointError(
            f"config.json of {checkpoint.name} has an id2label that maps no numbers to names"
        ) from error
    if sorted(by_column) != list(range(len(by_column))) or not by_column:
        raise CheckpointError(f"config.json of {checkpoint.name} has an id2label with gaps: {sorted(by_column)}")
    shape = checkpoint.weights.shape(*_HEAD_WEIGHTS)
    if shape is not None and shape[0] != len(by_column):
        raise CheckpointError(
            f"the classification head of {checkpoint.name} has {shape[0]} rows, but config.json names "
            f"{len(by_column)} labels"
        )
    return tuple(by_column[index] for index in range(len(by_column)))


def activation_of(checkpoint: Checkpoint, kind: Kind, num_labels: int) -> tuple[str, str]:
    """Return the activation, on by itself or not, and where it was read.

    First of: sentence-transformers' own choice, `problem_type` (but of a reward), the default: a sigmoid for one
    column, a softmax for more.
    """
    named, source = _sentence_transformers_activation(checkpoint)
    if named is not None:
        name = activation_name(named, source)
        return name.lower() if name in ("Identity", "Sigmoid", "Softmax") else name, source
    problem_type = checkpoint.config.get("problem_type")
    by_width = "sigmoid" if num_labels == 1 else "softmax"
    known = {"regression": "identity", "single_label_classification": by_width, "multi_label_classification": "sigmoid"}
    if problem_type is not None and kind != "reward":
        if problem_type not in known:
            raise CheckpointError(f"config.json of {checkpoint.name} has the unknown problem_type {problem_type!r}")
        return known[problem_type], f"problem_type {problem_type} in config.json"
    return by_width, f"the default of a {kind} with {num_labels} column(s)"


def gives_logits(checkpoint: Checkpoint, kind: Kind, num_labels: int) -> bool:
    """Return whether the columns are given as logits unless a request asks for the activation.

    So are rewards, and the several columns of a sentence-transformers CrossEncoder that names no activation.
    """
    if kind == "reward":
        return True
    named, _ = _sentence_transformers_activation(checkpoint)
    is_silent = named is None and checkpoint.config.get("problem_type") is None
    return is_silent and checkpoint.settings.get("model_type") == "CrossEncoder" and num_labels > 1


def _activation_fact(activation: str, source: str, is_on: bool) -> Fact:
    value = activation if is_on else f"none, or {activation} where a request asks for it"
    return Fact(what="activation", value=value, source=source)


def _sentence_transformers_activation(checkpoint: Checkpoint) -> tuple[object, str]:
    """Return what sentence-transformers' CrossEncoder saved, in the order in which it looks for it."""
    if checkpoint.settings.get("model_type") == "CrossEncoder" and checkpoint.settings.get("activation_fn"):
        return checkpoint.settings["activation_fn"], "activation_fn in config_sentence_transformers.json"
    nested = _nested(checkpoint.config)
    if "activation_fn" in nested:
        return nested["activation_fn"], "sentence_transformers.activation_fn in config.json"
    key = "sbert_ce_default_activation_function"
    return checkpoint.config.get(key), f"{key} in config.json"


def _nested(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("sentence_transformers")
    return nested if isinstance(nested, dict) else {}


def _kind(checkpoint: Checkpoint, num_labels: int) -> Kind:
    if checkpoint.task == "reward" and num_labels == 1:
        return "reward"
    saved_by = _nested(checkpoint.config) or "sbert_ce_default_activation_function" in checkpoint.config
    if saved_by or checkpoint.settings.get("model_type") == "CrossEncoder":
        return "cross_encoder"
    if num_labels > 1:
        return "classifier"
    if checkpoint.config.get("problem_type") == "regression":
        return "classifier"
    return "reward" if _is_causal(checkpoint) else "cross_encoder"


def _why(checkpoint: Checkpoint, kind: Kind) -> str:
    if kind == "reward" and checkpoint.task == "reward":
        return "the option task"
    read = f"config.json, {checkpoint.architecture}"
    return f"{read}; {REWARD_BY_DEFAULT}" if kind == "reward" else read


def _is_causal(checkpoint: Checkpoint) -> bool:
    return family_of(checkpoint.config["model_type"]).causal


def _templated(checkpoint: Checkpoint) -> bool:
    return "message" in (checkpoint.module_settings.get("modality_config") or {})


def _refuse_other_modules(checkpoint: Checkpoint) -> None:
    others = [module.kind for module in checkpoint.modules[1:]]
    if others:
        raise CheckpointError(
            f"modules.json of {checkpoint.name} puts {', '.join(others)} behind a {checkpoint.architecture}, which "
            f"Cenote does not run"
        )

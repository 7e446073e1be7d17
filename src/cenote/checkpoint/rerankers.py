"""Rerankers made of causal language models: two rows of the vocabulary head, or a listwise projector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import linear_source
from cenote.checkpoint.families import family_of
from cenote.checkpoint.labels import activation_of, sequence_classification
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import ClassifySpec, DenseSpec, Fact, ListwiseSpec, MultiVectorSpec, PromptFamily
from cenote.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class _Published:
    """A family of published rerankers on `model_type`, and what their model cards quote: one of `card`.

    The score is the logit of `yes` less that of `no`; `no` is `None` for a single row.
    """

    prompt: PromptFamily
    model_type: str
    card: tuple[str, ...]
    yes: str
    no: str | None


_PUBLISHED = (
    _Published(
        prompt="qwen3-reranker",
        model_type="qwen3",
        card=("Judge whether the Document meets the requirements based on the Query and the Instruct provided.",),
        yes="yes",
        no="no",
    ),
    _Published(
        prompt="mxbai-rerank-v2",
        model_type="qwen2",
        card=(
            "from mxbai_rerank import MxbaiRerankV2",
            "You are a search relevance expert who evaluates how well documents match search queries.",
        ),
        yes="1",
        no="0",
    ),
    _Published(
        prompt="bge-reranker-v2-gemma",
        model_type="gemma",
        card=("Given a query A and a passage B, determine whether the passage contains an answer to the query",),
        yes="Yes",
        no=None,
    ),
)
PROMPT_FAMILIES = tuple(family.prompt for family in _PUBLISHED)
"""What the option `prompt_family` may be."""
_VOCABULARY_HEADS = ("lm_head.weight", "model.embed_tokens.weight")
"""A model whose two are tied stores the second only."""
_SAME_ROW = 0.99
"""The cosine of a head with the rows that it was made of, which may have been rounded to half precision on the way."""
_JINA_DOCUMENT, _JINA_QUERY = ("<|embed_token|>", 151670), ("<|rerank_token|>", 151671)
_JINA_DIMENSIONS = 512
_JINA_MAX_DOCUMENTS, _JINA_MAX_DOCUMENT_LENGTH, _JINA_MAX_QUERY_LENGTH = 64, 2048, 512
"""The bounds of jina-reranker-v3's own code."""


def logit_score(checkpoint: Checkpoint) -> Parts | None:
    """Recognise sentence-transformers' LogitScore: a text-generation Transformer and two token ids."""
    kinds = [module.kind for module in checkpoint.modules[1:]]
    if "LogitScore" not in kinds:
        return None
    if kinds != ["LogitScore"] or not checkpoint.architecture.endswith("ForCausalLM"):
        raise CheckpointError(
            f"{checkpoint.name} has LogitScore where Cenote runs it: alone, behind a causal language model"
        )
    config = checkpoint.modules[1].config
    source = f"{checkpoint.modules[1].folder.name}/config.json"
    yes, no = config.get("true_token_id"), config.get("false_token_id")
    for token in (yes, no) if no is not None else (yes,):
        if not isinstance(token, int) or not 0 <= token < checkpoint.vocab_size:
            raise CheckpointError(
                f"{source} has the token id {token!r}, outside of the vocabulary of {checkpoint.vocab_size}"
            )
    templated = "message" in (checkpoint.module_settings.get("modality_config") or {})
    asked = _asked_family(checkpoint)
    prompt = asked.prompt if asked is not None else "chat-template" if templated else None
    return _parts(checkpoint, (int(yes or 0), no), prompt, source)


def converted(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a reranker whose vocabulary rows were made into a head of one score, by its files or by the options."""
    if checkpoint.task == "reward" or not checkpoint.architecture.endswith("ForSequenceClassification"):
        return None
    if _keeps_vocabulary_head(checkpoint) or not family_of(checkpoint.config["model_type"]).causal:
        return None
    parts = sequence_classification(checkpoint)
    if parts is None or parts.classify is None or parts.classify.num_labels != 1:
        return None
    found = _family(checkpoint)
    if found is None and (parts.classify.kind != "reward" or checkpoint.task != "rerank"):
        return None
    found = found or _family_of_type(checkpoint)
    prompt: PromptFamily = "chat-template" if found is None else found[0].prompt
    source = "the option task" if found is None else found[1]
    activation, read_from = activation_of(checkpoint, "cross_encoder", 1)
    classify = ClassifySpec(
        kind="cross_encoder",
        num_labels=1,
        labels=parts.classify.labels,
        activation=activation,
        pad_token_id=parts.classify.pad_token_id,
        prompt_family=prompt,
    )
    facts = (
        Fact(what="classify", value="cross_encoder, 1 column", source=source),
        Fact(what="activation", value=activation, source=read_from),
    )
    return Parts(classify=classify, facts=facts)


def published(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a causal language model that is a reranker, by its model card or because the user says so.

    Nothing else in such a folder tells a reranker from the language model that it was made of.
    """
    if checkpoint.modules or checkpoint.task not in (None, "rerank", "classify"):
        return None
    if not checkpoint.architecture.endswith("ForCausalLM") and not _keeps_vocabulary_head(checkpoint):
        return None
    found = None if checkpoint.pooling is not None and checkpoint.task is None else _family(checkpoint)
    if found is None and checkpoint.task is not None:
        found = _family_of_type(checkpoint)
    if found is None:
        return None
    family, source = found
    asked_by = f"a reranker like {family.prompt}"
    yes = checkpoint.vocabulary.require(family.yes, asked_by)
    no = None if family.no is None else checkpoint.vocabulary.require(family.no, asked_by)
    return _parts(checkpoint, (yes, no), family.prompt, source)


def _keeps_vocabulary_head(checkpoint: Checkpoint) -> bool:
    """Return whether the score is still in the vocabulary head of a `*ForSequenceClassification`, as vLLM reads it."""
    return "classifier_from_token" in checkpoint.config and "score.weight" not in checkpoint.weights.tensors


def _family(checkpoint: Checkpoint) -> tuple[_Published, str] | None:
    """Return the published family whose prompt the scores need, and what says so: the option, else the files."""
    asked = _asked_family(checkpoint)
    if asked is not None:
        return asked, "the option prompt_family"
    for family in _PUBLISHED:
        sign = _sign(checkpoint, family) if family.model_type == checkpoint.config["model_type"] else None
        if sign is not None:
            return family, sign
    return None


def is_published_on(model_type: str) -> bool:
    """Return whether one of the known families is of this type, so that `rerank` alone says enough."""
    return any(family.model_type == model_type for family in _PUBLISHED)


def _asked_family(checkpoint: Checkpoint) -> _Published | None:
    return next((family for family in _PUBLISHED if family.prompt == checkpoint.prompt_family), None)


def _family_of_type(checkpoint: Checkpoint) -> tuple[_Published, str] | None:
    """Return the family that is published on this type of model, for a user who only said that it reranks."""
    for family in _PUBLISHED:
        if family.model_type == checkpoint.config["model_type"]:
            return family, f"the option task; {family.prompt} is the known one of type {family.model_type}"
    return None


def _sign(checkpoint: Checkpoint, family: _Published) -> str | None:
    """Return what in the files says that a checkpoint is of `family`; where they lie says nothing."""
    answers = [family.yes] if family.no is None else [family.no, family.yes]
    if checkpoint.config.get("classifier_from_token") == answers:
        return "classifier_from_token in config.json"
    if any(quoted in checkpoint.model_card for quoted in family.card):
        return "README.md, which quotes the prompt or the code of this family"
    return _head_of_answers(checkpoint, family)


def _head_of_answers(checkpoint: Checkpoint, family: _Published) -> str | None:
    """Recognise a head by its weights: it is the vocabulary's row of `yes` less that of `no`."""
    head = checkpoint.weights.row("score.weight", 0)
    if head is None or not checkpoint.vocabulary.is_readable:
        return None
    rows = [_vocabulary_row(checkpoint, word) for word in (family.yes, family.no) if word is not None]
    found = [row for row in rows if row is not None and row.shape == head.shape]
    if len(found) < len(rows):
        return None
    made = found[0] if family.no is None else found[0] - found[1]
    norms = float(np.linalg.norm(head) * np.linalg.norm(made))
    if norms == 0 or float(head @ made) < _SAME_ROW * norms:
        return None
    rest = "" if family.no is None else f" less that of {family.no!r}"
    return f"score.weight, which is the row of {family.yes!r} in the vocabulary{rest}"


def _vocabulary_row(checkpoint: Checkpoint, word: str) -> npt.NDArray[np.float32] | None:
    token = checkpoint.vocabulary.token_id(word)
    name = next((name for name in _VOCABULARY_HEADS if name in checkpoint.weights.tensors), "")
    return None if token is None else checkpoint.weights.row(name, token)


def listwise(checkpoint: Checkpoint) -> Parts | None:
    """Recognise jina-reranker-v3: Qwen3, and Linear, ReLU, Linear (`projector.0`, `projector.2`) without biases."""
    if checkpoint.architecture != "JinaForRanking":
        return None
    document, query = (_token(checkpoint, *token) for token in (_JINA_DOCUMENT, _JINA_QUERY))
    shape = checkpoint.weights.shape("projector.0.weight")
    inner = checkpoint.hidden_size // 2 if shape is None else shape[0]
    shape = checkpoint.weights.shape("projector.2.weight")
    width = _JINA_DIMENSIONS if shape is None else shape[0]
    dense = (
        _projector(checkpoint, "projector.0.", (inner, checkpoint.hidden_size), "ReLU"),
        _projector(checkpoint, "projector.2.", (width, inner), "Identity"),
    )
    return Parts(
        token_embed=MultiVectorSpec(dense=dense, normalize=False, dimensions=width),
        listwise=ListwiseSpec(
            document_token_id=document,
            query_token_id=query,
            max_documents=_JINA_MAX_DOCUMENTS,
            max_document_length=_JINA_MAX_DOCUMENT_LENGTH,
            max_query_length=_JINA_MAX_QUERY_LENGTH,
        ),
        facts=(
            Fact(what="listwise", value=f"documents {document}, query {query}", source="config.json, JinaForRanking"),
        ),
    )


def _parts(checkpoint: Checkpoint, ids: tuple[int, int | None], prompt: PromptFamily | None, source: str) -> Parts:
    activation, read_from = activation_of(checkpoint, "cross_encoder", 1)
    classify = ClassifySpec(
        kind="llm_reranker",
        num_labels=1,
        labels=("relevance",),
        activation=activation,
        yes_token_id=ids[0],
        no_token_id=ids[1],
        prompt_family=prompt,
    )
    value = f"token {ids[0]}" + ("" if ids[1] is None else f" against {ids[1]}")
    facts = (
        Fact(what="classify", value=f"llm_reranker, {value}", source=source),
        Fact(what="activation", value=activation, source=read_from),
    )
    return Parts(classify=classify, facts=facts)


def _projector(checkpoint: Checkpoint, prefix: str, shape: tuple[int, int], activation: str) -> DenseSpec:
    source = linear_source(checkpoint.weights, (prefix,), shape, bias=False)
    return DenseSpec(in_features=shape[1], out_features=shape[0], bias=False, activation=activation, weights=source)


def _token(checkpoint: Checkpoint, token: str, default: int) -> int:
    found = checkpoint.vocabulary.token_id(token)
    return default if found is None else found

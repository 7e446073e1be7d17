"""Rerankers made of causal language models: two rows of the vocabulary head, or a listwise projector."""

from __future__ import annotations

from dataclasses import dataclass

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import linear_source
from cenote.checkpoint.labels import activation_of, sequence_classification
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import ClassifySpec, DenseSpec, Fact, ListwiseSpec, MultiVectorSpec, PromptFamily
from cenote.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class _Published:
    """A family of published rerankers: whose names hold `name`, on `model_type`; `no` is `None` for a single row."""

    name: str
    model_type: str
    prompt: PromptFamily
    yes: str
    no: str | None


_PUBLISHED = (
    _Published(name="qwen3-reranker", model_type="qwen3", prompt="qwen3-reranker", yes="yes", no="no"),
    _Published(name="mxbai-rerank", model_type="qwen2", prompt="mxbai-rerank-v2", yes="1", no="0"),
    _Published(name="bge-reranker-v2-gemma", model_type="gemma", prompt="bge-reranker-v2-gemma", yes="Yes", no=None),
)
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
    return _parts(checkpoint, (int(yes or 0), no), "chat-template" if templated else None, source)


def converted(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a published reranker whose two vocabulary rows were made into a head of one score, by its name."""
    prompt = next((family.prompt for family in _PUBLISHED if _is_named(checkpoint, family)), None)
    parts = None if prompt is None else sequence_classification(checkpoint)
    if parts is None or parts.classify is None or parts.classify.num_labels != 1:
        return None
    activation, read_from = activation_of(checkpoint, "cross_encoder", 1)
    classify = ClassifySpec(
        kind="cross_encoder", num_labels=1, labels=parts.classify.labels, activation=activation, prompt_family=prompt
    )
    facts = (
        Fact(what="classify", value="cross_encoder, 1 column", source=f"the published name {checkpoint.name}"),
        Fact(what="activation", value=activation, source=read_from),
    )
    return Parts(classify=classify, facts=facts)


def _is_named(checkpoint: Checkpoint, family: _Published) -> bool:
    short = checkpoint.name.rsplit("/", 1)[-1].lower()
    return family.name in short and family.model_type == checkpoint.config["model_type"]


def published(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a causal language model that is a reranker by its published name, or because the user asks to classify.

    Nothing in such a folder tells a reranker from the language model that it was made of.
    """
    if not checkpoint.architecture.endswith("ForCausalLM") or checkpoint.modules:
        return None
    for family in _PUBLISHED:
        if family.model_type != checkpoint.config["model_type"]:
            continue
        is_named = _is_named(checkpoint, family)
        if is_named or checkpoint.task == "classify":
            source = f"the published name {checkpoint.name}" if is_named else "the option task"
            yes = checkpoint.vocabulary.require(family.yes, f"a reranker like {family.name}")
            no = (
                None
                if family.no is None
                else checkpoint.vocabulary.require(family.no, f"a reranker like {family.name}")
            )
            return _parts(checkpoint, (yes, no), family.prompt, source)
    return None


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

"""Multi-vector embedding: one vector for each token, from sentence-transformers, PyLate and Stanford checkpoints.

How the older layouts are read follows sentence-transformers 6.2's `MultiVectorEncoder`, which is the reference.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import linear_source, read_dense
from cenote.checkpoint.expansion import expansion_spec, pylate_expansion, split_prefixes, stanford_expansion
from cenote.checkpoint.jsonfile import read_optional_object
from cenote.checkpoint.modules import Module
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.schema import COLBERT_METADATA, checked
from cenote.checkpoint.spec import DenseSpec, ExpansionSpec, Fact, MultiVectorSpec
from cenote.errors import CheckpointError

_PYLATE_KEYS = frozenset(
    {"query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens", "skiplist_words"}
)


@dataclass(frozen=True, kw_only=True)
class _Chain:
    dense: tuple[DenseSpec, ...]
    normalize: bool
    mask: Module | None


def from_modules(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a chain without Pooling that sentence-transformers' MultiVectorEncoder or PyLate saved."""
    modules = checkpoint.modules[1:]
    pylate = _is_pylate(checkpoint)
    native = checkpoint.settings.get("model_type") == "MultiVectorEncoder" or any(
        m.kind == "MultiVectorMask" for m in modules
    )
    if not checkpoint.modules or not (pylate or native) or any(module.kind == "Pooling" for module in modules):
        return None
    chain = _chain(checkpoint, modules)
    return _pylate(checkpoint, chain) if pylate and chain.mask is None else _native(checkpoint, chain)


def stanford(checkpoint: Checkpoint) -> Parts | None:
    """Recognise Stanford's HF_ColBERT: `linear.weight` among the weights, settings in `artifact.metadata`."""
    if checkpoint.architecture != "HF_ColBERT":
        return None
    path = checkpoint.folder / "artifact.metadata"
    metadata = checked(read_optional_object(path), COLBERT_METADATA, str(path))
    shape = checkpoint.weights.shape("linear.weight")
    width = shape[0] if shape else metadata.get("dim")
    if not isinstance(width, int):
        raise CheckpointError(
            f"{checkpoint.name} gives its vector size neither in its weights nor in artifact.metadata"
        )
    words = string.punctuation if metadata.get("mask_punctuation", True) else ""
    vectors = MultiVectorSpec(
        linear=linear_source(checkpoint.weights, ("linear.",), (width, checkpoint.hidden_size), bias=False),
        skiplist_token_ids=_token_ids(checkpoint, words),
        dimensions=width,
    )
    return _parts(vectors, stanford_expansion(checkpoint, metadata), {}, "HF_ColBERT, artifact.metadata")


def _is_pylate(checkpoint: Checkpoint) -> bool:
    named = checkpoint.settings.get("model_type") == "ColBERT" or bool(_PYLATE_KEYS & set(checkpoint.settings))
    return named or any(module.type.startswith("pylate.") for module in checkpoint.modules)


def _chain(checkpoint: Checkpoint, modules: Iterable[Module]) -> _Chain:
    dense: list[DenseSpec] = []
    masks: list[Module] = []
    normalize = False
    width = checkpoint.hidden_size
    for module in modules:
        default = "token_embeddings" if module.kind == "Dense" else "sentence_embedding"
        reads = module.config.get("module_input_name", default)
        if module.kind == "MultiVectorMask":
            masks.append(module)
        elif module.kind == "Dense" and not normalize and reads == "token_embeddings":
            dense.append(read_dense(module, width))
            width = dense[-1].out_features
        elif module.kind == "Normalize" and reads == "token_embeddings":
            normalize = True
        elif module.kind != "Dropout":
            raise CheckpointError(
                f"{checkpoint.name} has {module.kind} on {reads!r} where Cenote runs Dense, "
                f"MultiVectorMask and Normalize on token_embeddings"
            )
    return _Chain(dense=tuple(dense), normalize=normalize, mask=masks[-1] if masks else None)


def _native(checkpoint: Checkpoint, chain: _Chain) -> Parts:
    settings = chain.mask.config if chain.mask is not None else {}
    expansion = expansion_spec(checkpoint, checkpoint.module_settings)
    if expansion.expand_queries and chain.mask is None:
        raise CheckpointError(
            f"{checkpoint.name} expands queries but has no MultiVectorMask module that scores the fill"
        )
    if settings.get("skiplist_tasks", "document") not in (["document"], "document"):
        raise CheckpointError(
            f"{checkpoint.name} leaves words out of queries too (skiplist_tasks), which Cenote does not run"
        )
    if settings.get("keep_only_token_ids"):
        raise CheckpointError(
            f"{checkpoint.name} keeps only some tokens (keep_only_token_ids), which Cenote does not run"
        )
    vectors = _vectors(checkpoint, chain, settings.get("skiplist_words") or (), normalize=chain.normalize)
    return _parts(vectors, expansion, None, "modules.json, sentence_bert_config.json")


def _pylate(checkpoint: Checkpoint, chain: _Chain) -> Parts:
    words = checkpoint.settings.get("skiplist_words")
    vectors = _vectors(checkpoint, chain, string.punctuation if words is None else words, normalize=True)
    markers, prompts = split_prefixes(checkpoint)
    expansion = pylate_expansion(checkpoint, markers)
    return _parts(vectors, expansion, prompts, "PyLate's config_sentence_transformers.json")


def _vectors(checkpoint: Checkpoint, chain: _Chain, words: Iterable[str], *, normalize: bool) -> MultiVectorSpec:
    return MultiVectorSpec(
        dense=chain.dense,
        normalize=normalize,
        skiplist_token_ids=_token_ids(checkpoint, words),
        dimensions=chain.dense[-1].out_features if chain.dense else checkpoint.hidden_size,
    )


def _token_ids(checkpoint: Checkpoint, words: Iterable[str]) -> tuple[int, ...]:
    """Return the ids of the words that are single tokens; the others cannot be left out and never were."""
    found = (checkpoint.vocabulary.token_id(str(word)) for word in words)
    return tuple(sorted({token for token in found if token is not None}))


def _parts(vectors: MultiVectorSpec, expansion: ExpansionSpec, prompts: Mapping[str, str] | None, source: str) -> Parts:
    facts: list[tuple[str, Any]] = [("multi_vector", f"{vectors.dimensions} values for each token")]
    if vectors.skiplist_token_ids:
        facts.append(("skiplist", f"{len(vectors.skiplist_token_ids)} tokens left out of documents"))
    if expansion.expand_queries:
        attended = "attended to" if expansion.attend_to_expansion else "not attended to"
        facts.append(("query_expansion", f"to {expansion.fill_length} tokens, {attended}"))
    for what, length in (("query_length", expansion.query_length), ("document_length", expansion.document_length)):
        if length is not None:
            facts.append((what, str(length)))
    return Parts(
        token_embed=vectors,
        expansion=expansion,
        prompts=prompts,
        facts=tuple(Fact(what=what, value=value, source=source) for what, value in facts),
    )

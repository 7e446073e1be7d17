"""The error for a checkpoint whose files leave open what it is: which options would settle it."""

from __future__ import annotations

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.embedding import POOLING_MODES
from cenote.checkpoint.rerankers import PROMPT_FAMILIES, is_published_on
from cenote.config import as_option
from cenote.errors import CheckpointError

_POOLING = as_option("pooling", *POOLING_MODES)


def no_recogniser(checkpoint: Checkpoint) -> CheckpointError:
    """Return the error for a checkpoint that nothing recognised, listing what the user may choose."""
    architecture = checkpoint.architecture
    head = f"{checkpoint.name} is a {architecture} without files of sentence-transformers that say how it is used"
    if checkpoint.modules:
        kinds = ", ".join(module.kind for module in checkpoint.modules)
        head = f"modules.json of {checkpoint.name} lists only {kinds}, which does not say how its rows are pooled"
    if architecture.endswith("ForMaskedLM"):
        return CheckpointError(
            f"{head}. Say it: {as_option('task', 'embed_sparse')} for a SPLADE model (with --pooling max or sum; max "
            f"by default), or {_POOLING} for dense embeddings"
        )
    if architecture.endswith("ForCausalLM"):
        known = is_published_on(checkpoint.config["model_type"])
        rerank = as_option("task", "rerank") if known else as_option("prompt_family", *PROMPT_FAMILIES)
        return CheckpointError(
            f"{head}. Say it: {rerank} for a reranker that answers yes or no, or {_POOLING} for dense embeddings"
        )
    return CheckpointError(f"{head}. Say how its token vectors become one with {_POOLING}; the model card names it")

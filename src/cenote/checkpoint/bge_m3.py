"""BGE-M3: three heads on one XLM-RoBERTa, two of them in files of their own.

The heads are FlagEmbedding's (BAAI/bge-m3): dense is the normalised first row; lexical weights are
`relu(sparse_linear(row))`, without special tokens; multi-vector rows are the normalised `colbert_linear(row)` of all
but the first row.
"""

from __future__ import annotations

from dataclasses import replace

from cenote.checkpoint import embedding
from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import linear_source
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.spec import (
    EmbedSpec,
    Fact,
    LexicalSpec,
    MultiVectorSpec,
    TensorSource,
    TokenClassifySpec,
)
from cenote.checkpoint.weights import read_weights
from cenote.errors import CheckpointError

SPARSE_FILE = "sparse_linear.pt"
COLBERT_FILE = "colbert_linear.pt"


def recognise(checkpoint: Checkpoint) -> Parts | None:
    """Recognise the two files of heads beside the backbone; sentence-transformers files are not needed."""
    found = [name for name in (SPARSE_FILE, COLBERT_FILE) if (checkpoint.folder / name).is_file()]
    if not found:
        return None
    if len(found) == 1:
        missing = COLBERT_FILE if found == [SPARSE_FILE] else SPARSE_FILE
        raise CheckpointError(f"{checkpoint.folder} has {found[0]} but no {missing}; fetch the checkpoint again")
    dense = embedding.from_modules(checkpoint) or _dense(checkpoint)
    facts = (
        Fact(what="sparse", value="BGE-M3 lexical weights", source=SPARSE_FILE),
        Fact(what="multi_vector", value="BGE-M3 ColBERT head", source=COLBERT_FILE),
    )
    return replace(
        dense,
        embed_sparse=_lexical(checkpoint),
        token_embed=_multi_vector(checkpoint),
        token_classify=TokenClassifySpec(kind="lexical", num_labels=1, labels=("weight",), activation="ReLU"),
        facts=dense.facts + facts,
    )


def _dense(checkpoint: Checkpoint) -> Parts:
    embed = EmbedSpec(modes=("cls",), normalize=True, dimensions=checkpoint.hidden_size)
    fact = Fact(what="pooling", value="cls, L2", source=f"BGE-M3, by {SPARSE_FILE} and {COLBERT_FILE}")
    return Parts(embed=embed, facts=(fact,))


def _lexical(checkpoint: Checkpoint) -> LexicalSpec:
    bos, eos = (
        _token(checkpoint, f"{name}_token_id", role) for name, role in (("bos", "cls_token"), ("eos", "eos_token"))
    )
    skipped = (bos, eos, checkpoint.config.get("pad_token_id"), checkpoint.vocabulary.special("unk_token"))
    return LexicalSpec(
        linear=_head(checkpoint, SPARSE_FILE, 1),
        skip_token_ids=tuple(sorted({token for token in skipped if isinstance(token, int)})),
        bos_token_id=bos,
        eos_token_id=eos,
        vocab_size=checkpoint.vocab_size,
    )


def _multi_vector(checkpoint: Checkpoint) -> MultiVectorSpec:
    return MultiVectorSpec(
        linear=_head(checkpoint, COLBERT_FILE, checkpoint.hidden_size),
        drop_first=True,
        dimensions=checkpoint.hidden_size,
    )


def _head(checkpoint: Checkpoint, name: str, out_features: int) -> TensorSource:
    weights = read_weights((checkpoint.folder / name,))
    return linear_source(weights, ("",), (out_features, checkpoint.hidden_size), bias=True)


def _token(checkpoint: Checkpoint, key: str, role: str) -> int:
    value = checkpoint.config.get(key)
    token = value if isinstance(value, int) else checkpoint.vocabulary.special(role)
    if token is None:
        raise CheckpointError(f"neither config.json nor the tokenizer of {checkpoint.name} gives {key}")
    return token

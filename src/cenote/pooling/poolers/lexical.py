"""BGE-M3's lexical weights: one number for each token, the largest one for each distinct token of the text."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from cenote.checkpoint.spec import LexicalSpec, TokenClassifySpec
from cenote.errors import CheckpointError, EngineError
from cenote.outputs import SparseVector
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.heads.classifier import LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.metadata import IntArray, PoolingMetadata
from cenote.pooling.methods.all import AllPool
from cenote.pooling.origin import Origin
from cenote.pooling.packed import TokenRows
from cenote.pooling.pooler import FloatArray, Pooler
from cenote.pooling.poolers.bos_eos import BOSEOSFilter
from cenote.pooling.poolers.token import TokenPooler
from cenote.pooling.weights import load_linear


class LexicalPooler(Pooler):
    """Give `relu(linear(row))` of every token; on the host, its maximum over the places of each token id.

    Tokens of `skip_token_ids` and weights of zero are no terms. As FlagEmbedding's `BGEM3FlagModel` defines it.
    """

    def __init__(self, linear: nn.Module, skip_token_ids: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = linear
        self.pooling = AllPool()
        self._skip_np = np.array(skip_token_ids, dtype=np.int64)

    def get_supported_tasks(self) -> frozenset[Task]:
        return frozenset({"embed_sparse"})

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:  # noqa: ARG002 - one task
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> TokenRows:
        weights_T1 = self.linear(hidden_states.float()).relu()
        rows: TokenRows = self.pooling(weights_T1, pooling_metadata)
        return [None if each is None else each.squeeze(-1) for each in rows]

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> SparseVector:  # noqa: ARG002
        if token_ids_np is None or len(token_ids_np) != len(rows_np):
            raise EngineError("a text's weights and token ids do not match, so they cannot be joined")
        is_term = (rows_np > 0) & ~np.isin(token_ids_np, self._skip_np)
        indices_np, places_np = np.unique(np.asarray(token_ids_np)[is_term], return_inverse=True)
        values_np = np.zeros(len(indices_np), dtype=np.float32)
        np.maximum.at(values_np, places_np, rows_np[is_term])
        return SparseVector(indices=indices_np.astype(np.int64), values=values_np)


def pooler_for_lexical(spec: LexicalSpec, origin: Origin) -> LexicalPooler:
    """Build the lexical weights of a checkpoint; raise `CheckpointError` where its linear cannot be used."""
    skipped = {*spec.skip_token_ids, spec.bos_token_id, spec.eos_token_id}
    return LexicalPooler(load_linear(spec.linear, origin.spec.hidden_size, 1), tuple(sorted(skipped)))


def pooler_for_lexical_tokens(spec: TokenClassifySpec, origin: Origin) -> BOSEOSFilter:
    """Build the raw weights, one for each token without BOS and EOS, repeated ids not joined, as vLLM gives them."""
    lexical = origin.spec.embed_sparse
    if not isinstance(lexical, LexicalSpec):
        raise CheckpointError(f"{origin.spec.name} gives lexical weights of tokens, but has no lexical linear")
    linear = load_linear(lexical.linear, origin.spec.hidden_size, 1)
    head = TokenClassifierPoolerHead(linear, LabelOptions("ReLU", spec.use_activation))
    return BOSEOSFilter(TokenPooler(AllPool(), head), lexical.bos_token_id, lexical.eos_token_id)

"""Multi-vector embeddings (ColBERT, BGE-M3, listwise rerankers): one vector for each token that counts."""

from __future__ import annotations

import numpy as np
from torch import nn

from cenote.checkpoint.spec import LexicalSpec, MultiVectorSpec
from cenote.errors import CheckpointError, EngineError
from cenote.params import PoolingParams, PoolingParamsUpdate, Task
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.heads.embedding import EmbeddingOptions
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from cenote.pooling.metadata import IntArray
from cenote.pooling.methods.all import AllPool
from cenote.pooling.methods.base import TokenPoolingMethod
from cenote.pooling.methods.jina import JinaForRankingPool
from cenote.pooling.origin import Origin
from cenote.pooling.pooler import FloatArray, PooledResult, Pooler
from cenote.pooling.poolers.bos_eos import BOSEOSFilter
from cenote.pooling.poolers.late_interaction import LateInteractionPooler
from cenote.pooling.poolers.token import TokenPooler
from cenote.pooling.weights import load_linear, load_projector


class MultiVectorPooler(TokenPooler):
    """Embed every token; a document's rows of `skiplist_token_ids` are computed and left out of the answer."""

    def __init__(
        self, pooling: TokenPoolingMethod, head: TokenEmbeddingPoolerHead, skiplist_token_ids: tuple[int, ...] = ()
    ) -> None:
        super().__init__(pooling, head)
        self._skiplist_np = np.array(skiplist_token_ids, dtype=np.int64)

    def get_pooling_updates(self, task: Task) -> PoolingParamsUpdate:
        needs = PoolingParamsUpdate(requires_token_ids=bool(len(self._skiplist_np)))
        return super().get_pooling_updates(task) | needs

    def finish(self, rows_np: FloatArray, token_ids_np: IntArray | None, params: PoolingParams) -> PooledResult:
        """Leave out the skiplist's rows of a document; each row stands for one of `token_ids_np`."""
        if params.input_type != "document" or not len(self._skiplist_np):
            return rows_np
        if token_ids_np is None or len(token_ids_np) != len(rows_np):
            raise EngineError("a document's rows and token ids do not match, so its skiplist cannot be applied")
        kept: FloatArray = rows_np[~np.isin(token_ids_np, self._skiplist_np)]
        return kept


def pooler_for_token_embed(spec: MultiVectorSpec, origin: Origin) -> Pooler:
    """Build the token embeddings of a checkpoint; raise `CheckpointError` where a weight cannot be used."""
    options = EmbeddingOptions(DimensionRule(spec.dimensions, None, origin.any_dimensions), spec.normalize)
    projector, listwise = _projector(spec, origin), origin.spec.listwise
    if listwise is not None:
        marks = JinaForRankingPool(projector, listwise.document_token_id, listwise.query_token_id)
        return MultiVectorPooler(marks, TokenEmbeddingPoolerHead(nn.Identity(), options))
    pooler = MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(projector, options), spec.skiplist_token_ids)
    if spec.drop_first:
        return LateInteractionPooler(BOSEOSFilter(pooler, bos_token_id=_bos_token_id(origin)))
    return LateInteractionPooler(pooler)


def _projector(spec: MultiVectorSpec, origin: Origin) -> nn.Module:
    if spec.linear is None:
        return load_projector(spec.dense)
    return load_linear(spec.linear, origin.spec.hidden_size, spec.dimensions)


def _bos_token_id(origin: Origin) -> int:
    sparse = origin.spec.embed_sparse
    bos = sparse.bos_token_id if isinstance(sparse, LexicalSpec) else origin.spec.config.get("bos_token_id")
    if not isinstance(bos, int):
        raise CheckpointError(f"{origin.spec.name} leaves out the first token's vector, but config.json names no BOS")
    return bos

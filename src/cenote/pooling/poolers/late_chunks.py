"""Dense embeddings of mean-pooled models: one for a whole text, or one for each of its pieces (late chunking)."""

from __future__ import annotations

import torch

from cenote.checkpoint.spec import EmbedSpec
from cenote.params import PoolingParams
from cenote.pooling.heads.embedding import EmbeddingPoolerHead
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from cenote.pooling.metadata import PoolingMetadata
from cenote.pooling.methods.mean import MeanPool
from cenote.pooling.methods.piece_mean import PieceMeanPool
from cenote.pooling.origin import Origin
from cenote.pooling.output import PoolerOutput
from cenote.pooling.poolers.sequence import SequencePooler, embed_head, pooler_for_embed


class LateChunkPooler(SequencePooler):
    """`[D]` for a sequence without `segments`, as `SequencePooler` gives it; `[k, D]` for one with k of them.

    Every piece goes through the same head as a text: Dense modules, cut, L2.
    """

    def __init__(self, head: EmbeddingPoolerHead) -> None:
        super().__init__(MeanPool(), head)
        self.pieces = PieceMeanPool()
        self.piece_head = TokenEmbeddingPoolerHead(head.projector, head.options)

    def verify_params(self, params: PoolingParams) -> None:
        self.head.verify_params(params)

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> PoolerOutput:
        params = pooling_metadata.pooling_params
        if all(each.segments is None for each in params):
            return super().forward(hidden_states, pooling_metadata)
        rows = self.piece_head(self.pieces(hidden_states, pooling_metadata), pooling_metadata)
        return [
            vectors if vectors is None or each.segments is not None else vectors[0]
            for vectors, each in zip(rows, params, strict=True)
        ]


def pooler_for_dense(spec: EmbedSpec, origin: Origin) -> SequencePooler:
    """Build the dense embedding of a checkpoint, with late chunking where a piece has a mean of its own."""
    return LateChunkPooler(embed_head(spec, origin)) if spec.modes == ("mean",) else pooler_for_embed(spec, origin)

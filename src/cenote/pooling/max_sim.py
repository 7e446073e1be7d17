"""MaxSim: for each vector of a query the best dot product with a vector of the document, summed over the query.

Source: ColBERT; sentence-transformers 6.2 and PyLate score so. The sum is not divided by the number of vectors.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from cenote.params import QueryVectors
from cenote.transfer import async_tensor_h2d

MAX_QUERY_ROWS = 64
"""Vectors of a query that are compared at once: `4 * MAX_QUERY_ROWS` bytes for each row of the step's documents."""


def max_sim(documents: list[torch.Tensor], queries: list[QueryVectors]) -> list[torch.Tensor]:
    """Return the fp32 score `[1]` of each document `[n, D]` against its query; 0 for a document without rows.

    Documents of the same query are compared together, with one upload of its vectors.
    """
    scores: list[torch.Tensor | None] = [None] * len(documents)
    for query in dict.fromkeys(queries):
        chosen = [i for i, other in enumerate(queries) if other is query]
        for i, score in zip(chosen, torch.split(_scores([documents[i] for i in chosen], query), 1), strict=True):
            scores[i] = score
    return [score for score in scores if score is not None]


def _scores(documents: list[torch.Tensor], query: QueryVectors) -> torch.Tensor:
    rows_ND = torch.cat(documents).float()
    lengths_np = np.array([len(document) for document in documents], dtype=np.int64)
    starts = async_tensor_h2d(np.cumsum(lengths_np) - lengths_np, rows_ND.device)
    rows = torch.arange(len(rows_ND), device=rows_ND.device)
    total_B = rows_ND.new_zeros(len(documents))
    for part_QD in torch.split(async_tensor_h2d(query.rows_np, rows_ND.device), MAX_QUERY_ROWS):
        best_BQ = functional.embedding_bag(rows, rows_ND @ part_QD.T, starts, mode="max")
        total_B = total_B + best_BQ.sum(dim=1)
    return total_B

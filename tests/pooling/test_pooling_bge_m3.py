"""BGE-M3: four outputs of one pass, each against FlagEmbedding's published definition written out here.

FlagEmbedding (`inference/embedder/encoder_only/m3.py` and the model card): dense is the normalised first row; lexical
weights are `relu(sparse_linear(row))`, for each token id the largest, without CLS, EOS, PAD and UNK and without weights
of zero; ColBERT vectors are the normalised `colbert_linear(row)` of every row but the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from pooling_models import Served, serve, serve_spec
from transformers import AutoModel

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.spec import LexicalSpec
from cenote.errors import CheckpointError, EngineError
from cenote.params import PoolingParams, Task
from cenote.pooling.metadata import PoolingMetadata, PoolingStates, build_pooling_cursor
from cenote.pooling.output import pack_outputs
from tiny import HIDDEN_SIZE
from tolerances import assert_close

CLS, PAD, EOS, UNK = 0, 1, 2, 3
TEXTS = [
    [CLS, 11, 12, 11, 30, EOS],
    [CLS, EOS],
    [CLS, 44, UNK, 44, 44, 51, EOS],
    [CLS, 9, EOS],
    [CLS, *range(20, 60), 20, 21, EOS],
]
TASKS: tuple[Task, ...] = ("embed", "embed_sparse", "token_embed", "token_classify")
ALL_TASKS = {task: PoolingParams(task=task) for task in TASKS}


def linear(out: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(out, HIDDEN_SIZE, generator=generator) * 0.3,
        "bias": torch.randn(out, generator=generator) * 0.3,
    }


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(copytree(checkpoint("xlm-roberta"), tmp_path_factory.mktemp("bge") / "m3"))
    torch.save(linear(1, 8), path / "sparse_linear.pt")
    torch.save(linear(HIDDEN_SIZE, 2), path / "colbert_linear.pt")
    return path


@pytest.fixture(scope="module")
def served(folder: Path) -> Served:
    return serve(folder)


def hidden_states(folder: Path, ids: list[int]) -> torch.Tensor:
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0]  # type: ignore[no-any-return]


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


def apply(weights: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    return rows @ weights["weight"].T + weights["bias"]


def lexical_weights(rows: torch.Tensor, ids: list[int]) -> dict[int, float]:
    result: dict[int, float] = {}
    for token, weight in zip(ids, torch.relu(apply(linear(1, 8), rows)).squeeze(-1).tolist(), strict=True):
        if token not in {CLS, PAD, EOS, UNK} and weight > result.get(token, 0):
            result[token] = weight
    return result


def test_the_spec_has_the_tokens_of_this_test(served: Served) -> None:
    lexical = served.spec.embed_sparse
    assert isinstance(lexical, LexicalSpec)
    assert set(lexical.skip_token_ids) == {CLS, PAD, EOS, UNK}
    assert served.pooler.get_supported_tasks() == set(TASKS)


def test_every_output_from_one_pass(served: Served, folder: Path) -> None:
    for ids, answer in zip(TEXTS, served.run(TEXTS, [ALL_TASKS] * len(TEXTS)), strict=True):
        rows = hidden_states(folder, ids)
        assert_close(answer["embed"], unit(rows[0]))
        assert_close(answer["token_embed"], unit(apply(linear(HIDDEN_SIZE, 2), rows[1:])))
        expected = lexical_weights(rows, ids)
        assert answer["embed_sparse"].indices.tolist() == sorted(expected)
        assert_close(answer["embed_sparse"].values, [expected[token] for token in sorted(expected)], "raw")
        raw = torch.relu(apply(linear(1, 8), rows)).squeeze(-1)[1:-1]
        assert_close(answer["token_classify"], raw, "raw")


def test_the_weights_tell_a_maximum_from_a_sum(served: Served) -> None:
    """Some term has two weights above zero in one text, and some weight is zero: the test above sees both rules."""
    raw = served.run_task("token_classify", TEXTS)
    positive = [(i, token) for i, weights in enumerate(raw) for token in np.array(TEXTS[i][1:-1])[weights > 0].tolist()]
    assert len(set(positive)) < len(positive)
    assert any((weights == 0).any() for weights in raw)


def test_the_backbone_runs_once_and_one_buffer_comes_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    handle = served.model.backbone.register_forward_hook(lambda *args: calls.append(1))
    buffers: list[int] = []

    def counting(groups: Any) -> Any:
        flat = pack_outputs(groups)
        buffers.append(len(flat.buffers))
        return flat

    monkeypatch.setattr("pooling_models.pack_outputs", counting)
    served.run(TEXTS, [ALL_TASKS] * len(TEXTS))
    handle.remove()
    assert (calls, buffers) == ([1], [1])


def test_mixed_tasks_equal_each_alone(served: Served) -> None:
    wishes: list[dict[Task, PoolingParams]] = [
        {task: PoolingParams(task=task) for task in tasks}
        for tasks in (("embed",), TASKS, ("token_embed", "embed_sparse"), ("embed_sparse",), ("token_classify",))
    ]
    together = served.run(TEXTS, wishes)
    for ids, wish, answer in zip(TEXTS, wishes, together, strict=True):
        (alone,) = served.run([ids], [wish])
        assert set(answer) == set(alone) == set(wish)
        for task, mine in answer.items():
            values, other = (mine.values, alone[task].values) if task == "embed_sparse" else (mine, alone[task])
            assert_close(values, other, "raw")


def test_a_text_without_its_marks_loses_no_row(served: Served) -> None:
    (vectors,) = served.run_task("token_embed", [[11, 12]])
    (weights,) = served.run_task("token_classify", [[11, 12]])
    assert (vectors.shape, weights.shape) == ((2, HIDDEN_SIZE), (2,))


def test_chunks_equal_whole(served: Served) -> None:
    """The rows of a step that come in two parts: every task sees them joined."""
    (whole,) = served.run([TEXTS[4]], [ALL_TASKS])
    ids = np.array(TEXTS[4], dtype=np.int64)
    rows = hidden_states(served.spec.folder, TEXTS[4])
    state = PoolingStates()
    for first, last in ((0, 10), (10, len(ids))):
        flat = pack_outputs(served.pooler(rows[first:last], chunk_metadata(ids, first, last, state)))
    host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
    assert not state.hidden_states_cache
    for entry in flat.entries:
        joined = served.pooler.finish(entry.task, entry.view(host), ids, ALL_TASKS[entry.task])
        expected = whole[entry.task]
        pair = (joined.values, expected.values) if entry.task == "embed_sparse" else (joined, expected)
        assert_close(*pair, "chunked")


def chunk_metadata(ids: np.ndarray, first: int, last: int, state: PoolingStates) -> Any:
    cursor = build_pooling_cursor(np.array([last - first]), np.array([len(ids)]), np.array([last]), torch.device("cpu"))
    return PoolingMetadata(
        prompt_lens=cursor.prompt_lens_cpu,
        params_by_task=[ALL_TASKS],
        token_ids_np=[ids],
        pooling_states=[state],
        pooling_cursor=cursor,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ids", [TEXTS[2], TEXTS[4]], ids=["short", "long"])
def test_half_precision_is_the_definition_on_its_own_rows(folder: Path, ids: list[int], dtype: torch.dtype) -> None:
    served = serve(folder, dtype=dtype)
    heads = {task: served.pooler.poolers_by_task[task] for task in TASKS}
    rows = hidden_states(folder, ids).to(dtype)
    metadata = chunk_metadata(np.array(ids, dtype=np.int64), 0, len(ids), PoolingStates())
    (dense,) = heads["embed"](rows, metadata.for_task("embed"))
    (vectors,) = heads["token_embed"](rows, metadata.for_task("token_embed"))
    (weights,) = heads["embed_sparse"](rows, metadata.for_task("embed_sparse"))
    wide = rows.float()
    assert float((dense - unit(wide[0])).abs().max()) < 5e-4
    assert float((vectors - unit(apply(linear(HIDDEN_SIZE, 2), wide[1:]))).abs().max()) < 5e-4
    assert float((weights - torch.relu(apply(linear(1, 8), wide)).squeeze(-1)).abs().max()) < 5e-4


def test_answers_that_do_not_fit_their_text_are_errors(served: Served) -> None:
    with pytest.raises(EngineError, match="do not match"):
        served.pooler.finish("embed_sparse", np.ones(3, np.float32), np.array([1, 2]), ALL_TASKS["embed_sparse"])


def test_parts_that_miss_each_other_are_refused(folder: Path) -> None:
    spec = read_checkpoint(folder)
    assert spec.token_embed is not None
    with pytest.raises(CheckpointError, match="no lexical linear"):
        serve_spec(spec, embed_sparse=None)
    config = {key: value for key, value in spec.config.items() if key != "bos_token_id"}
    with pytest.raises(CheckpointError, match="names no BOS"):
        serve_spec(replace(spec, embed_sparse=None, token_classify=None), config=config)
    linear_of_another_size = replace(spec.token_embed, dimensions=HIDDEN_SIZE - 1)
    with pytest.raises(CheckpointError, match=r"colbert_linear\.pt should hold"):
        serve_spec(spec, token_embed=linear_of_another_size)


def test_every_task_runs_on_a_device_without_values(folder: Path) -> None:
    meta = torch.device("meta")
    served = serve_spec(read_checkpoint(folder), device=meta)
    lens = np.array([len(ids) for ids in TEXTS])
    cursor = build_pooling_cursor(lens, lens, lens, meta)
    metadata = replace(
        chunk_metadata(np.array(TEXTS[0]), 0, len(TEXTS[0]), PoolingStates()),
        prompt_lens=cursor.prompt_lens_cpu,
        params_by_task=[ALL_TASKS] * len(TEXTS),
        token_ids_np=[np.array(ids) for ids in TEXTS],
        pooling_states=[PoolingStates() for _ in TEXTS],
        pooling_cursor=cursor,
    )
    flat = pack_outputs(served.pooler(torch.empty(int(lens.sum()), HIDDEN_SIZE, device=meta), metadata))
    assert len(flat.entries) == len(TEXTS) * len(TASKS)

"""What every pooler owes: a row in the docs, and the shared behaviour, walked from the folder."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pooling_batches import Step, hidden_rows
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cenote.checkpoint.spec import SpladeSpec
from cenote.outputs import SparseVector
from cenote.params import TASKS, PoolingParams
from cenote.pooling import poolers
from cenote.pooling.dimensions import DimensionRule
from cenote.pooling.dispatch import DispatchPooler
from cenote.pooling.heads.classifier import LabelOptions, TokenClassifierPoolerHead
from cenote.pooling.heads.embedding import EmbeddingOptions, EmbeddingPoolerHead
from cenote.pooling.heads.token_embedding import TokenEmbeddingPoolerHead
from cenote.pooling.methods.all import AllPool
from cenote.pooling.methods.mean import MeanPool
from cenote.pooling.methods.step import StepDefaults, StepPool
from cenote.pooling.output import pack_outputs
from cenote.pooling.pooler import Pooler
from cenote.pooling.poolers.bos_eos import BOSEOSFilter
from cenote.pooling.poolers.late_chunks import LateChunkPooler
from cenote.pooling.poolers.late_interaction import LateInteractionPooler
from cenote.pooling.poolers.lexical import LexicalPooler
from cenote.pooling.poolers.multi_vector import MultiVectorPooler
from cenote.pooling.poolers.process_reward import ProcessRewardPooler, StepLimits
from cenote.pooling.poolers.sequence import SequencePooler
from cenote.pooling.poolers.splade import SPLADESparsePooler
from cenote.pooling.poolers.token import TokenPooler
from read_only import ReadOnly

FOLDER = Path(poolers.__file__).parent
DOCS = Path(__file__).resolve().parents[2] / "docs" / "poolers.md"
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
LENGTHS = [3, 1, 5]
IDS = [[0, 5, 2], [0], [7, 5, 8, 5, 2]]
OPTIONS = EmbeddingOptions(DimensionRule(6, ()), normalize=True)


def linear(columns: int) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, columns).requires_grad_(False)


def token_pooler() -> TokenPooler:
    return TokenPooler(AllPool(), TokenClassifierPoolerHead(linear(3), LabelOptions("auto")))


MAKERS: dict[type[Pooler], Callable[[], Pooler]] = {
    SequencePooler: lambda: SequencePooler(MeanPool(), EmbeddingPoolerHead(nn.Identity(), OPTIONS)),
    LateChunkPooler: lambda: LateChunkPooler(EmbeddingPoolerHead(nn.Identity(), OPTIONS)),
    TokenPooler: token_pooler,
    BOSEOSFilter: lambda: BOSEOSFilter(token_pooler(), 0, 2),
    LexicalPooler: lambda: LexicalPooler(linear(1), (0, 2)),
    MultiVectorPooler: lambda: MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,)),
    LateInteractionPooler: lambda: LateInteractionPooler(
        MultiVectorPooler(AllPool(), TokenEmbeddingPoolerHead(nn.Identity(), OPTIONS), (5,))
    ),
    ProcessRewardPooler: lambda: ProcessRewardPooler(
        StepPool(linear(3), StepDefaults(step_tag_id=5)), LabelOptions("auto"), StepLimits(3, 10)
    ),
    SPLADESparsePooler: lambda: SPLADESparsePooler(linear(9), SpladeSpec(pooling="max", vocab_size=9)),
}
EVERY_POOLER = pytest.mark.parametrize("make", MAKERS.values(), ids=[cls.__name__ for cls in MAKERS])


def classes_in_the_folder() -> dict[str, type[Pooler]]:
    modules = [importlib.import_module(f"cenote.pooling.poolers.{name}") for name in FILES]
    return {
        name: value
        for module in modules
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Pooler) and value.__module__ == module.__name__
    }


def documented() -> dict[str, list[str]]:
    """Return the cells of each row of the table by its file."""
    rows = [line.strip("|").split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `").removesuffix(".py"): [cell.strip() for cell in cells] for cells in rows}


def test_every_file_has_a_row_and_every_row_a_file() -> None:
    assert sorted(documented()) == FILES


def test_every_class_is_in_its_row_and_under_contract() -> None:
    classes = classes_in_the_folder()
    assert set(classes.values()) == set(MAKERS)
    for name, cls in classes.items():
        assert f"`{name}`" in documented()[cls.__module__.rpartition(".")[2]][1]


@pytest.mark.parametrize("file", FILES)
def test_no_cell_of_a_row_is_empty(file: str) -> None:
    assert all(documented()[file])


@EVERY_POOLER
def test_tasks_are_known_and_documented(make: Callable[[], Pooler]) -> None:
    pooler = make()
    assert pooler.get_supported_tasks()
    assert pooler.get_supported_tasks() <= set(TASKS)
    tasks = documented()[type(pooler).__module__.rpartition(".")[2]][2]
    if "inside" not in tasks:
        assert all(f"`{task}`" in tasks for task in pooler.get_supported_tasks())


def run(pooler: Pooler, device: torch.device, **step: Any) -> Any:
    (task,) = pooler.get_supported_tasks()
    dispatcher = DispatchPooler({task: pooler}).to(device)
    needs = dispatcher.get_pooling_updates(task).requires_token_ids
    options = {"token_ids": IDS if needs else None, **step}
    metadata = Step(LENGTHS, task=task, device=device, **options).metadata()
    return pack_outputs(dispatcher(hidden_rows(LENGTHS).to(device), metadata)), task


@EVERY_POOLER
def test_each_text_gets_one_answer_from_what_was_asked_for(make: Callable[[], Pooler]) -> None:
    pooler = make()
    flat, task = run(pooler, torch.device("cpu"))
    assert [entry.sequence for entry in flat.entries] == [0, 1, 2]
    host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
    assert set(host) == {torch.float32}
    for entry, ids in zip(flat.entries, IDS, strict=True):
        answer = pooler.finish(entry.view(host), np.array(ids), PoolingParams(task=task))
        values = answer.values if isinstance(answer, SparseVector) else answer
        assert np.isfinite(values).all()
        assert values.dtype == np.float32


@EVERY_POOLER
def test_unfinished_texts_are_left_out_and_their_state_can_be_freed(make: Callable[[], Pooler]) -> None:
    prompt_lens = [3, 4, 5]
    flat, _ = run(make(), torch.device("cpu"), prompt_lens=prompt_lens, token_ids=[IDS[0], [0, 5, 5, 2], IDS[2]])
    assert [entry.sequence for entry in flat.entries] == [0, 2]


@EVERY_POOLER
def test_the_same_shapes_on_a_device_without_values(make: Callable[[], Pooler]) -> None:
    flat, _ = run(make(), torch.device("cpu"))
    audited, _ = run(make(), torch.device("meta"))
    assert audited.entries == flat.entries


FORBIDDEN = (
    "aten._local_scalar_dense",
    "aten.nonzero",
    "aten.item",
    "aten.masked_select",
    "aten._unique2",
    "aten.is_nonzero",
)


class Watch(TorchDispatchMode):
    """Refuses operations whose output size, or whose meaning, depends on values; and copies to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not str(func).startswith(FORBIDDEN), func
        result = func(*args, **(kwargs or {}))
        if str(func).startswith("aten._to_copy") and args[0].device.type == "meta":
            assert result.device.type == "meta", "a copy to the host"
        if str(func).startswith("aten.index."):
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "a boolean mask"
            assert all(index is None or index.device == args[0].device for index in args[1]), "a host index"
        return result


@EVERY_POOLER
def test_no_operation_asks_the_device_for_a_value(make: Callable[[], Pooler]) -> None:
    pooler = make()
    (task,) = pooler.get_supported_tasks()
    meta = torch.device("meta")
    wish = {"use_activation": False} if task != "embed_sparse" else {}
    metadata = Step(LENGTHS, task=task, token_ids=IDS, params=[wish, {}, {}], device=meta).metadata()
    rows = torch.empty(sum(LENGTHS), 6, device=meta)
    pooler = pooler.to(meta)
    with Watch():
        pooler(rows, metadata)


@EVERY_POOLER
def test_answers_outlive_the_hidden_states(make: Callable[[], Pooler]) -> None:
    """The next step writes to the runner's buffer while the answers are still on their way."""
    pooler = make()
    (task,) = pooler.get_supported_tasks()
    rows = hidden_rows(LENGTHS)
    outputs = pooler(rows, Step(LENGTHS, task=task, token_ids=IDS).metadata())
    kept = [each.clone() for each in outputs if each is not None]
    rows.fill_(torch.nan)
    for now, before in zip(outputs, kept, strict=True):
        assert now is not None
        assert torch.equal(now, before)


@EVERY_POOLER
def test_a_step_writes_nothing_of_a_pooler(make: Callable[[], Pooler]) -> None:
    """Steps that run at the same time share their poolers."""
    pooler = make()
    with ReadOnly([pooler]).on():
        run(pooler, torch.device("cpu"))

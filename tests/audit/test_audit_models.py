"""Every supported architecture, and every pooler inside a model, has no place where a GPU would wait but the known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from transformers import AutoModel

from cenote.audit import DTYPES, audit_model, audit_pooler
from cenote.audit.known import read_known
from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.checkpoint.spec import (
    ClassifySpec,
    EmbedSpec,
    ListwiseSpec,
    MultiVectorSpec,
    TokenClassifySpec,
)
from cenote.params import Task
from tiny import FAMILIES, HIDDEN_SIZE, CheckpointFactory, Head


def assert_no_findings(spec: ModelSpec, *tasks: Task, dtypes: Sequence[torch.dtype] = (torch.float16,)) -> None:
    """Heads and poolers run in fp32 whatever the model's dtype is, so one dtype will do for them."""
    report = audit_model(spec, dtypes)
    assert report.is_clean, report.as_text()
    assert set(spec.tasks) == set(tasks)
    for task in tasks:
        assert sum(task in step for step in report.steps) >= 4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(checkpoint: CheckpointFactory, family: str) -> None:
    assert_no_findings(read_checkpoint(checkpoint(family), pooling="mean"), "embed", dtypes=DTYPES)


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_other_poolings(checkpoint: CheckpointFactory, pooling: str) -> None:
    family = {"cls": "bert", "last": "qwen3"}[pooling]
    assert_no_findings(read_checkpoint(checkpoint(family), pooling=pooling), "embed")


@pytest.mark.parametrize("mode", ["max", "mean_sqrt_len", "weighted_mean"])
def test_rare_poolings(checkpoint: CheckpointFactory, mode: str) -> None:
    part = EmbedSpec(modes=(mode, "cls"), dimensions=2 * HIDDEN_SIZE, normalize=True)  # type: ignore[arg-type]
    assert_no_findings(replace(read_checkpoint(checkpoint("bert"), pooling="mean"), embed=part), "embed")


HEADS: Mapping[str, tuple[str, Head, Task]] = {
    f"{family}-{head}": (family, head, task)
    for head, task, families in (
        (
            "sequence_classification",
            "classify",
            "bert roberta distilbert electra modernbert mpnet deberta-v2 eurobert qwen2 llama gemma2",
        ),
        ("token_classification", "token_classify", "bert roberta modernbert deberta-v2 qwen3"),
    )
    for family in families.split()
}


@pytest.mark.parametrize("name", HEADS)
def test_labels(checkpoint: CheckpointFactory, name: str) -> None:
    family, head, task = HEADS[name]
    assert_no_findings(read_checkpoint(checkpoint(family, head=head)), task)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "deberta-v2"])
def test_splade(checkpoint: CheckpointFactory, family: str) -> None:
    spec = read_checkpoint(checkpoint(family, head="masked_lm"), task="embed_sparse")
    assert_no_findings(spec, "embed_sparse")


def test_every_output_of_bge_m3(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = Path(copytree(checkpoint("xlm-roberta"), tmp_path / "m3"))
    for name, columns in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        linear = {"weight": torch.zeros(columns, HIDDEN_SIZE), "bias": torch.zeros(columns)}
        torch.save(linear, folder / f"{name}.pt")
    assert_no_findings(read_checkpoint(folder), "embed", "embed_sparse", "token_embed", "token_classify")


def base(checkpoint: CheckpointFactory, family: str) -> ModelSpec:
    return replace(read_checkpoint(checkpoint(family), pooling="mean"), embed=None)


def colbert(checkpoint: CheckpointFactory) -> tuple[ModelSpec, Task]:
    part = MultiVectorSpec(drop_first=False, skiplist_token_ids=(9,), dimensions=HIDDEN_SIZE)
    return replace(base(checkpoint, "bert"), token_embed=part), "token_embed"


def listwise(checkpoint: CheckpointFactory) -> tuple[ModelSpec, Task]:
    marks = ListwiseSpec(
        document_token_id=7, query_token_id=9, max_documents=4, max_document_length=8, max_query_length=8
    )
    part = MultiVectorSpec(dimensions=HIDDEN_SIZE)
    return replace(base(checkpoint, "qwen3"), token_embed=part, listwise=marks), "token_embed"


def process_reward(checkpoint: CheckpointFactory) -> tuple[ModelSpec, Task]:
    part = TokenClassifySpec(
        kind="process_reward", num_labels=2, labels=("bad", "good"), activation="auto", step_tag_id=7
    )
    spec = base(checkpoint, "qwen2")
    return replace(spec, architecture="Qwen2ForProcessRewardModel", token_classify=part), "token_classify"


def outcome_reward(checkpoint: CheckpointFactory) -> tuple[ModelSpec, Task]:
    part = ClassifySpec(kind="reward", num_labels=1, labels=("reward",), activation="auto", use_activation=False)
    return replace(base(checkpoint, "qwen2"), architecture="Qwen2ForRewardModel", classify=part), "classify"


def llm_reranker(checkpoint: CheckpointFactory) -> tuple[ModelSpec, Task]:
    spec = read_checkpoint(checkpoint("qwen3", head="causal_lm"), pooling="last")
    part = ClassifySpec(
        kind="llm_reranker", num_labels=1, labels=("yes",), activation="sigmoid", yes_token_id=41, no_token_id=43
    )
    return replace(spec, embed=None, classify=part), "classify"


@pytest.mark.parametrize("make", [colbert, listwise, process_reward, outcome_reward, llm_reranker])
def test_scores_and_tokens(
    checkpoint: CheckpointFactory, make: Callable[[CheckpointFactory], tuple[ModelSpec, Task]]
) -> None:
    spec, task = make(checkpoint)
    assert_no_findings(spec, task)


def test_a_fault_in_a_model_is_found(checkpoint: CheckpointFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check as above fails where a model's forward waits."""
    from transformers.models.bert.modeling_bert import BertEmbeddings

    forward = BertEmbeddings.forward

    def waiting(self: BertEmbeddings, input_ids: torch.Tensor, **options: object) -> torch.Tensor:
        assert input_ids.max().item() < self.word_embeddings.num_embeddings
        embeddings: torch.Tensor = forward(self, input_ids, **options)
        return embeddings

    monkeypatch.setattr(BertEmbeddings, "forward", waiting)
    findings = audit_model(read_checkpoint(checkpoint("bert"), pooling="mean")).findings
    assert {(finding.kind, finding.operation, finding.place.file) for finding in findings} == {
        ("reads_value", "Tensor.item", __file__)
    }


def test_each_known_place_has_a_reason_and_an_origin() -> None:
    assert all(known.reason and known.origin for known in read_known())


PLAIN_WAITS = {
    "mpnet": ("masking_utils.py", "reads_value"),
    "deberta-v2": ("modeling_deberta_v2.py", "blocking_copy"),
}


@pytest.mark.parametrize("family", PLAIN_WAITS)
def test_what_plain_transformers_waits_for_is_found(checkpoint: CheckpointFactory, family: str) -> None:
    """The places that Cenote's own way of running these families goes around."""
    model = AutoModel.from_pretrained(checkpoint(family))

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, hidden_states: torch.Tensor, pooling_metadata: object) -> torch.Tensor:
            ids = torch.ones((1, len(hidden_states)), dtype=torch.int64, device=hidden_states.device)
            output: torch.Tensor = self.model(input_ids=ids, attention_mask=torch.ones_like(ids))[0]
            return output

    found = {(Path(each.place.file).name, each.kind) for each in audit_pooler(Plain).findings}
    assert PLAIN_WAITS[family] in found

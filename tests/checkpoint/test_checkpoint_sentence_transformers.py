"""Dense embedding checkpoints as sentence-transformers saves them, old and new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, edit_modules, writable, write
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.spec import PoolingMode
from cenote.errors import CheckpointError
from fetch_models import ensure
from tiny import HIDDEN_SIZE, TinyDense, add_sentence_transformers_files

MODES: list[tuple[str, PoolingMode]] = [
    ("cls", "cls"),
    ("max", "max"),
    ("mean", "mean"),
    ("mean_sqrt_len_tokens", "mean_sqrt_len"),
    ("weightedmean", "weighted_mean"),
    ("lasttoken", "last"),
]


def test_a_whole_chain_is_read_in_its_order(saved_chain: Path) -> None:
    spec = read_checkpoint(saved_chain)
    embed = spec.embed
    assert spec.tasks == ("embed",)
    assert embed is not None
    assert embed.modes == ("mean", "cls")
    assert [(d.in_features, d.out_features, d.bias, d.activation) for d in embed.dense] == [
        (2 * HIDDEN_SIZE, 24, True, "Tanh"),
        (24, 8, False, "Identity"),
    ]
    assert [d.weights.prefix for d in embed.dense] == ["linear.", "linear."]
    assert embed.normalize
    assert embed.dimensions == 8 == SentenceTransformer(str(saved_chain), device="cpu").get_embedding_dimension()
    assert spec.text.prompts == {"query": "find: ", "document": ""}
    assert spec.text.default_prompt_name == "query"


@pytest.mark.parametrize(("name", "mode"), MODES)
@pytest.mark.parametrize("compact", [False, True])
def test_every_pooling_mode_in_both_forms(bert: Path, name: str, mode: PoolingMode, compact: bool) -> None:
    add_sentence_transformers_files(bert, pooling_mode=name, compact=compact)
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert embed.modes == (mode,)
    assert embed.dimensions == HIDDEN_SIZE
    assert not embed.normalize


def test_boolean_modes_are_joined_in_the_fixed_order_of_sentence_transformers(bert: Path) -> None:
    add_sentence_transformers_files(bert, pooling_mode=[name for name, _ in reversed(MODES)])
    embed = read_checkpoint(bert).embed
    reference = Pooling.load(str(bert / "1_Pooling"))
    assert embed is not None
    assert embed.modes == tuple(mode for _, mode in MODES)
    assert embed.modes == tuple(dict(MODES)[name] for name in reference.pooling_mode)
    assert embed.dimensions == 6 * HIDDEN_SIZE


def test_compact_modes_keep_their_own_order(bert: Path) -> None:
    add_sentence_transformers_files(bert, pooling_mode=["lasttoken", "cls"], compact=True)
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert embed.modes == ("last", "cls")


@pytest.mark.parametrize(
    ("dense", "width"),
    [
        ((TinyDense(HIDDEN_SIZE, 24),), 24),
        ((TinyDense(HIDDEN_SIZE, 24, folder_suffix="Dense_foo"),), 24),
        ((TinyDense(HIDDEN_SIZE, 24), TinyDense(24, 16)), 16),
        ((TinyDense(HIDDEN_SIZE, 24, activation="Identity", bias=False),), 24),
        ((TinyDense(HIDDEN_SIZE, 24, safetensors=False),), 24),
    ],
    ids=["2_Dense", "renamed", "two", "identity without bias", "bin only"],
)
def test_dense_modules_of_a_local_folder_are_never_lost(bert: Path, dense: tuple[TinyDense, ...], width: int) -> None:
    """BL-03"""
    add_sentence_transformers_files(bert, dense=dense, normalize=True)
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert embed.dimensions == width == SentenceTransformer(str(bert), device="cpu").get_embedding_dimension()
    for read, asked in zip(embed.dense, dense, strict=True):
        assert (read.activation, read.bias) == (asked.activation, asked.bias)
        assert read.weights.path.parent.name.endswith(asked.folder_suffix)
        assert read.weights.path.suffix == (".safetensors" if asked.safetensors else ".bin")
        assert read.weights.prefix == "linear."


@pytest.mark.parametrize("prefix", ["", "dense."])
@pytest.mark.parametrize("safetensors", [True, False])
def test_dense_weights_under_other_keys(bert: Path, prefix: str, safetensors: bool) -> None:
    add_sentence_transformers_files(bert, dense=(TinyDense(HIDDEN_SIZE, 24),))
    path = bert / "2_Dense" / "model.safetensors"
    tensors = {key.replace("linear.", prefix): tensor for key, tensor in load_file(path).items()}
    path.unlink()
    if safetensors:
        from safetensors.torch import save_file

        save_file(tensors, path)
    else:
        torch.save(tensors, bert / "2_Dense" / "pytorch_model.bin")
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert embed.dense[0].weights.prefix == prefix


def test_module_paths_of_every_release_are_the_same_module(chain: Path) -> None:
    def rename(modules: list[dict[str, str]]) -> None:
        for module in modules:
            module["type"] = "sentence_transformers.models." + module["type"].rsplit(".", 1)[1]

    new = read_checkpoint(chain).embed
    edit_modules(chain, rename)
    assert read_checkpoint(chain).embed == new


def test_a_transformer_in_a_subfolder(bert: Path) -> None:
    add_sentence_transformers_files(bert, max_seq_length=32)
    sub = bert / "0_Transformer"
    sub.mkdir()
    for path in [*bert.glob("*.json"), *bert.glob("*.safetensors")]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(sub / path.name)
    edit_modules(bert, lambda modules: modules[0].update(path="0_Transformer"))
    spec = read_checkpoint(bert)
    assert (spec.root, spec.folder, spec.text.tokenizer_folder) == (bert, sub, sub)
    assert spec.text.max_length == 32
    assert spec.weight_files == (sub / "model.safetensors",)


def test_include_prompt_is_read(bert: Path) -> None:
    add_sentence_transformers_files(bert, include_prompt=False)
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert embed.include_prompt is False


@pytest.mark.parametrize("flag", [True, False])
def test_do_lower_case_is_a_flag_of_the_text_not_of_the_tokenizer(bert: Path, flag: bool) -> None:
    """BL-17"""
    add_sentence_transformers_files(bert, do_lower_case=flag)
    assert read_checkpoint(bert).text.do_lower_case is flag


def test_settings_under_an_old_name(bert: Path) -> None:
    add_sentence_transformers_files(bert, do_lower_case=True, max_seq_length=20)
    (bert / "sentence_bert_config.json").rename(bert / "sentence_distilbert_config.json")
    text = read_checkpoint(bert).text
    assert (text.do_lower_case, text.max_length) == (True, 20)


def test_a_dropout_module_changes_nothing(chain: Path) -> None:
    plain = read_checkpoint(chain).embed
    (chain / "9_Dropout").mkdir()
    entry = {"idx": 9, "name": "9", "path": "9_Dropout", "type": "sentence_transformers.models.Dropout"}
    edit_modules(chain, lambda modules: modules.insert(2, entry))
    assert read_checkpoint(chain).embed == plain


def test_the_pooling_option_wins_and_says_so(bert: Path) -> None:
    add_sentence_transformers_files(bert)
    spec = read_checkpoint(bert, pooling="cls")
    assert spec.embed is not None
    assert spec.embed.modes == ("cls",)
    assert any(fact.what == "pooling" and "option" in fact.source for fact in spec.facts)


@pytest.mark.parametrize(
    ("config", "settings", "matryoshka", "default"),
    [
        ({}, {}, None, None),
        ({"matryoshka_dimensions": [32, 16]}, {}, (16, 32), None),
        ({"is_matryoshka": True}, {}, (), None),
        ({}, {"truncate_dim": 16}, (16,), 16),
        ({"matryoshka_dimensions": [32]}, {"truncate_dim": 16}, (16, 32), 16),
        ({}, {"truncate_dim": HIDDEN_SIZE}, None, None),
    ],
)
def test_matryoshka_sizes(
    bert: Path, config: dict[str, object], settings: dict[str, object], matryoshka: object, default: object
) -> None:
    add_sentence_transformers_files(bert)
    edit(bert / "config.json", **config)
    edit(bert / "config_sentence_transformers.json", **settings)
    embed = read_checkpoint(bert).embed
    assert embed is not None
    assert (embed.matryoshka, embed.default_dimensions, embed.dimensions) == (matryoshka, default, HIDDEN_SIZE)


QWEN3_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
GEMMA_QUERY = "task: search result | query: "
GEMMA_DENSE = (TinyDense(HIDDEN_SIZE, 256, "Identity", bias=False), TinyDense(256, 200, "Identity", bias=False))


@pytest.mark.parametrize(
    ("family", "modules", "expected"),
    [
        ("qwen3", {"pooling_mode": "lasttoken", "prompts": {"query": QWEN3_QUERY, "document": ""}}, ()),
        ("qwen3", {"pooling_mode": "mean", "prompts": {"query": QWEN3_QUERY}}, None),
        ("qwen3", {"pooling_mode": "lasttoken"}, None),
        ("qwen2", {"pooling_mode": "lasttoken", "prompts": {"query": QWEN3_QUERY}}, None),
        ("gemma3_text_bidirectional", {"dense": GEMMA_DENSE, "prompts": {"query": GEMMA_QUERY}}, (128,)),
        ("gemma3_text_bidirectional", {"prompts": {"query": GEMMA_QUERY}}, None),
    ],
)
def test_families_that_were_trained_for_smaller_sizes_without_saying_so(
    checkpoint: CheckpointFactory, tmp_path: Path, family: str, modules: dict[str, Any], expected: object
) -> None:
    """Qwen3-Embedding and EmbeddingGemma, by their backbone, their modules and the prompt of their queries."""
    folder = writable(checkpoint(family), tmp_path)
    spec = read_checkpoint(add_sentence_transformers_files(folder, normalize=True, **modules))
    assert spec.embed is not None
    assert spec.embed.matryoshka == expected
    sources = [fact.source for fact in spec.facts if fact.what == "matryoshka"]
    assert [source.startswith("made like ") for source in sources] == ([] if expected is None else [True])


def test_sizes_in_the_model_card_that_training_wrote(chain: Path) -> None:
    """Every card of sentence-transformers links to a page on Matryoshka models: only the loss says something."""
    model = SentenceTransformer(str(chain), device="cpu")
    model.save(str(chain))
    assert "matryoshka" in (chain / "README.md").read_text().lower()
    embed = read_checkpoint(chain).embed
    assert embed is not None
    assert embed.matryoshka is None
    loss = MatryoshkaLoss(model, MultipleNegativesRankingLoss(model), matryoshka_dims=[8, 4, 2])
    config = json.dumps(loss.get_config_dict(), indent=4)
    (chain / "README.md").write_text(f"* Loss: MatryoshkaLoss with these parameters:\n  ```json\n{config}\n  ```")
    spec = read_checkpoint(chain)
    assert spec.embed is not None
    assert spec.embed.matryoshka == (2, 4, 8)
    fact = next(fact for fact in spec.facts if fact.what == "matryoshka")
    assert (fact.value, fact.source) == ("2, 4, 8", "MatryoshkaLoss in README.md")


def test_token_vectors_where_they_are_asked_for(bert: Path) -> None:
    add_sentence_transformers_files(bert, dense=(TinyDense(HIDDEN_SIZE, 24),))
    assert read_checkpoint(bert).tasks == ("embed",)
    spec = read_checkpoint(bert, task="token_embed")
    assert spec.tasks == ("embed", "token_embed")
    assert spec.token_embed is not None
    assert (spec.token_embed.dimensions, spec.token_embed.normalize) == (24, True)


def test_facts_name_the_files(saved_chain: Path) -> None:
    facts = {(fact.what, fact.value): fact.source for fact in read_checkpoint(saved_chain).facts}
    assert facts["pooling", "mean + cls"] == "1_Pooling/config.json"
    assert facts["dense", f"{2 * HIDDEN_SIZE} -> 24, Tanh"] == "2_Dense/model.safetensors"
    assert facts["normalize", "L2"] == "modules.json"
    assert facts["max_length", "64"] == "max_position_embeddings in config.json"


def test_the_real_minilm() -> None:
    folder = ensure("all-MiniLM-L6-v2")
    spec = read_checkpoint(folder)
    assert (spec.name, spec.model_type, spec.hidden_size, spec.is_causal) == ("all-MiniLM-L6-v2", "bert", 384, False)
    assert spec.embed is not None
    assert (spec.embed.modes, spec.embed.normalize, spec.embed.dimensions) == (("mean",), True, 384)
    assert (spec.text.max_length, spec.text.max_length_reason) == (256, "max_seq_length of sentence-transformers")


def test_refusals_of_chains_that_cannot_be_run(chain: Path) -> None:
    dense = chain / "2_Dense"
    edit(dense / "config.json", activation_function="torch.nn.functional.relu")
    with pytest.raises(CheckpointError, match=r"torch\.nn\.functional\.relu"):
        read_checkpoint(chain)
    edit(dense / "config.json", activation_function="os.system")
    with pytest.raises(CheckpointError, match=r"os\.system"):
        read_checkpoint(chain)
    edit(dense / "config.json", activation_function="torch.nn.modules.activation.Tanh", use_residual=True)
    with pytest.raises(CheckpointError, match="use_residual"):
        read_checkpoint(chain)
    edit(dense / "config.json", use_residual=..., in_features=HIDDEN_SIZE)
    with pytest.raises(CheckpointError, match=f"takes {HIDDEN_SIZE} values, but the module before it gives"):
        read_checkpoint(chain)
    edit(dense / "config.json", in_features=2 * HIDDEN_SIZE, out_features=23)
    with pytest.raises(CheckpointError, match=r"shape \[24, 128\]"):
        read_checkpoint(chain)


def test_a_dense_module_without_weights_is_an_error(chain: Path) -> None:
    (chain / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2_Dense has no weights"):
        read_checkpoint(chain)


def test_modules_in_another_order_are_refused(chain: Path) -> None:
    edit_modules(chain, lambda modules: modules.insert(2, modules.pop()))
    with pytest.raises(CheckpointError, match="chains Transformer, Pooling, Normalize, Dense, Dense"):
        read_checkpoint(chain)


@pytest.mark.parametrize(
    "kind",
    [
        "sentence_transformers.models.WordEmbeddings",
        "sentence_transformers.models.CNN",
        "sentence_transformers.models.LayerNorm",
        "sentence_transformers.models.WeightedLayerPooling",
        "sentence_transformers.base.modules.router.Router",
        "sentence_transformers.models.StaticEmbedding",
        "custom_st.Transformer",
        "pylate.models.Pooling",
    ],
)
def test_unknown_modules_are_refused_by_name(chain: Path, kind: str) -> None:
    edit_modules(chain, lambda modules: modules[1].update(type=kind))
    with pytest.raises(CheckpointError, match=kind.replace(".", r"\.")):
        read_checkpoint(chain)


def test_pooling_of_another_width_or_of_no_kind(bert: Path) -> None:
    add_sentence_transformers_files(bert)
    pooling = bert / "1_Pooling" / "config.json"
    edit(pooling, word_embedding_dimension=12)
    with pytest.raises(CheckpointError, match=f"pools 12 values, but the model gives {HIDDEN_SIZE}"):
        read_checkpoint(bert)
    write(pooling, {"word_embedding_dimension": HIDDEN_SIZE, "pooling_mode_mean_tokens": False})
    with pytest.raises(CheckpointError, match="names no pooling mode; say which with --pooling cls"):
        read_checkpoint(bert)
    write(pooling, {"pooling_mode": "attention"})
    with pytest.raises(CheckpointError, match="'attention'"):
        read_checkpoint(bert)


def test_a_default_prompt_that_is_not_there(chain: Path) -> None:
    edit(chain / "config_sentence_transformers.json", default_prompt_name="passage")
    with pytest.raises(CheckpointError, match="'passage', but only these prompts: "):
        read_checkpoint(chain)


def test_a_chat_template_in_front_of_an_embedding_is_refused(chain: Path) -> None:
    edit(chain / "sentence_bert_config.json", modality_config={"message": {"method": "forward"}})
    with pytest.raises(CheckpointError, match="chat template"):
        read_checkpoint(chain)

"""Cross-encoders, classifiers, token labels and rewards, and the activation that each of them asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_folders import CheckpointFactory, edit, writable
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.spec import ClassifySpec
from cenote.errors import CheckpointError
from reranker_folders import add_card

SIGMOID = "torch.nn.modules.activation.Sigmoid"
FLAT = "sbert_ce_default_activation_function"
IDENTITY = "torch.nn.modules.linear.Identity"


def _classify(folder: Path) -> ClassifySpec:
    spec = read_checkpoint(folder)
    assert spec.tasks == ("classify",)
    assert spec.classify is not None
    return spec.classify


@pytest.fixture
def scorer(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    return writable(checkpoint("bert", head="sequence_classification", num_labels=1), tmp_path)


@pytest.fixture
def classifier(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    return writable(checkpoint("bert", head="sequence_classification"), tmp_path)


@pytest.mark.parametrize(
    ("activation", "name"),
    [(None, "sigmoid"), (torch.nn.Identity(), "identity"), (torch.nn.Tanh(), "Tanh"), (torch.nn.Sigmoid(), "sigmoid")],
)
def test_a_cross_encoder_as_sentence_transformers_saves_it(
    scorer: Path, tmp_path: Path, activation: torch.nn.Module | None, name: str
) -> None:
    CrossEncoder(str(scorer), activation_fn=activation, device="cpu").save(str(tmp_path / "saved"))
    read = _classify(tmp_path / "saved")
    reference = CrossEncoder(str(tmp_path / "saved"), device="cpu").activation_fn
    assert (read.kind, read.num_labels, read.activation) == ("cross_encoder", 1, name)
    assert type(reference).__name__.lower() == name.lower()


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        ({}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1"}}, "identity"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        ({FLAT: IDENTITY}, "identity"),
        ({FLAT: None}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": IDENTITY}, FLAT: SIGMOID}, "identity"),
        ({"sentence_transformers": {"activation_fn": IDENTITY}, "problem_type": "regression"}, "identity"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}, "problem_type": "regression"}, "sigmoid"),
    ],
)
def test_activations_of_older_cross_encoders(scorer: Path, config: dict[str, Any], activation: str) -> None:
    """BL-09, the part that is read."""
    edit(scorer / "config.json", **config)
    read = _classify(scorer)
    assert (read.kind, read.activation, read.use_activation) == ("cross_encoder", activation, True)
    reference = CrossEncoder(str(scorer), device="cpu").activation_fn
    assert type(reference).__name__.lower() == activation


@pytest.mark.parametrize(
    ("labels", "problem_type", "activation"),
    [
        (3, None, "softmax"),
        (3, "single_label_classification", "softmax"),
        (3, "multi_label_classification", "sigmoid"),
        (3, "regression", "identity"),
        (1, "regression", "identity"),
        (1, "single_label_classification", "sigmoid"),
    ],
)
def test_activations_by_problem_type(
    checkpoint: CheckpointFactory, tmp_path: Path, labels: int, problem_type: str | None, activation: str
) -> None:
    folder = writable(checkpoint("bert", head="sequence_classification", num_labels=labels), tmp_path)
    edit(folder / "config.json", problem_type=problem_type)
    assert _classify(folder).activation == activation


def test_a_problem_type_that_is_unknown(classifier: Path) -> None:
    edit(classifier / "config.json", problem_type="ranking")
    with pytest.raises(CheckpointError, match="'ranking'"):
        read_checkpoint(classifier)


@pytest.mark.parametrize(
    "name", ["os.system", "torch.load", "torch.nn.Linear", "my.torch.nn.Sigmoid", "torch.nn.modules.linear.Linear"]
)
@pytest.mark.parametrize("key", ["nested", "flat"])
def test_activations_from_elsewhere_are_refused(scorer: Path, name: str, key: str) -> None:
    value = {"sentence_transformers": {"activation_fn": name}} if key == "nested" else {FLAT: name}
    edit(scorer / "config.json", **value)
    with pytest.raises(CheckpointError, match=f"the activation '{name}'"):
        read_checkpoint(scorer)


def test_labels_in_the_order_of_their_columns(classifier: Path) -> None:
    edit(classifier / "config.json", id2label={"2": "neutral", "0": "negative", "1": "positive"})
    read = _classify(classifier)
    assert (read.kind, read.labels) == ("classifier", ("negative", "positive", "neutral"))


def test_two_labels_that_transformers_leaves_out(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification", num_labels=2)
    assert "id2label" not in json.loads((folder / "config.json").read_text())
    assert _classify(folder).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize("id2label", [{"0": "a", "2": "b"}, {"x": "a"}, {}, ["a"]])
def test_labels_that_are_no_columns(classifier: Path, id2label: object) -> None:
    edit(classifier / "config.json", id2label=id2label)
    with pytest.raises(CheckpointError, match="id2label"):
        read_checkpoint(classifier)


def test_a_head_with_another_number_of_rows(classifier: Path) -> None:
    edit(classifier / "config.json", id2label={"0": "a", "1": "b"})
    with pytest.raises(CheckpointError, match=r"has 3 rows, but config\.json names 2 labels"):
        read_checkpoint(classifier)


def test_token_labels(checkpoint: CheckpointFactory) -> None:
    spec = read_checkpoint(checkpoint("bert", head="token_classification"))
    assert spec.tasks == ("token_classify",)
    assert spec.token_classify is not None
    assert (spec.token_classify.kind, spec.token_classify.num_labels) == ("token_labels", 3)
    assert (spec.token_classify.activation, spec.token_classify.step_tag_id) == ("softmax", None)


def test_one_column_of_a_decoder_is_a_reward(
    checkpoint: CheckpointFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = writable(checkpoint("qwen3", head="sequence_classification", num_labels=1), tmp_path)
    reward = _classify(folder)
    assert (reward.kind, reward.activation, reward.use_activation) == ("reward", "sigmoid", False)
    assert "--task rerank (in Python task='rerank')" in caplog.text
    caplog.clear()
    assert read_checkpoint(folder, task="reward").classify == reward
    assert not caplog.records
    edit(folder / "config.json", sentence_transformers={"activation_fn": SIGMOID})
    reranker = _classify(folder)
    assert (reranker.kind, reranker.activation, reranker.use_activation) == ("cross_encoder", "sigmoid", True)


@pytest.mark.parametrize("architecture", ["Qwen2ForRewardModel", "Qwen2ForProcessRewardModel"])
def test_reward_heads_of_qwen(checkpoint: CheckpointFactory, tmp_path: Path, architecture: str) -> None:
    folder = writable(checkpoint("qwen2"), tmp_path)
    edit(
        folder / "config.json",
        architectures=[architecture],
        auto_map={"AutoModel": f"modeling_qwen2_rm.{architecture}"},
    )
    edit(folder / "tokenizer_config.json", chat_template="{{ messages }}")
    spec = read_checkpoint(folder)
    assert spec.text.chat_template == "{{ messages }}"
    assert "auto_map" not in spec.config
    assert spec.token_classify is not None
    if architecture == "Qwen2ForRewardModel":
        assert spec.tasks == ("classify", "token_classify")
        assert spec.classify is not None
        assert (spec.classify.kind, spec.classify.activation, spec.classify.use_activation) == (
            "reward",
            "auto",
            False,
        )
        return
    assert spec.tasks == ("token_classify",)
    steps = spec.token_classify
    assert (steps.kind, steps.num_labels, steps.activation, steps.step_tag_id) == (
        "process_reward",
        2,
        "auto",
        151651,
    )


def test_the_step_token_of_the_checkpoints_own_tokenizer(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = writable(checkpoint("qwen2"), tmp_path)
    edit(folder / "config.json", architectures=["Qwen2ForProcessRewardModel"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": 200, "content": "<extra_0>", "special": True, **flags})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    spec = read_checkpoint(folder)
    assert spec.token_classify is not None
    assert spec.token_classify.step_tag_id == 200


def test_a_score_behind_a_plain_bert_is_not_offered(checkpoint: CheckpointFactory) -> None:
    with pytest.raises(CheckpointError, match="does not offer the task 'classify'; it offers: embed"):
        read_checkpoint(checkpoint("bert"), task="classify", pooling="cls")
    with pytest.raises(CheckpointError, match=r"the task 'sort' is not known; choose one of: .*, rerank, reward"):
        read_checkpoint(checkpoint("bert"), task="sort")
    with pytest.raises(CheckpointError, match="the prompt_family 'mine' is not known; choose one of: qwen3-reranker"):
        read_checkpoint(checkpoint("bert"), prompt_family="mine")


def test_one_column_of_an_encoder_is_a_reward_where_the_user_says_so(scorer: Path) -> None:
    """OpenAssistant's reward models are DeBERTa, and their files are those of a cross-encoder."""
    spec = read_checkpoint(scorer, task="reward")
    assert spec.classify is not None
    assert (spec.classify.kind, spec.classify.use_activation) == ("reward", False)
    assert next(fact.source for fact in spec.facts if fact.what == "classify") == "the option task"
    with pytest.raises(CheckpointError, match="is no language model that scores pairs: leave prompt_family out"):
        read_checkpoint(scorer, prompt_family="qwen3-reranker")


def _with_tensors(folder: Path, **tensors: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | tensors, path, metadata={"format": "pt"})


def test_a_listwise_reranker_of_jina(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = writable(checkpoint("qwen3"), tmp_path)
    edit(folder / "config.json", architectures=["JinaForRanking"], auto_map={"AutoModel": "modeling.JinaForRanking"})
    with pytest.raises(CheckpointError, match=r"projector\.0\.weight"):
        read_checkpoint(folder)
    _with_tensors(folder, **{"projector.0.weight": torch.zeros(32, 64), "projector.2.weight": torch.zeros(512, 32)})
    spec = read_checkpoint(folder)
    assert spec.tasks == ("token_embed",)
    assert spec.listwise is not None
    assert (spec.listwise.document_token_id, spec.listwise.query_token_id) == (151670, 151671)
    assert (spec.listwise.max_documents, spec.listwise.max_document_length) == (64, 2048)
    assert spec.token_embed is not None
    assert (spec.token_embed.dimensions, spec.token_embed.normalize) == (512, False)
    assert [(d.in_features, d.out_features, d.activation, d.weights.prefix) for d in spec.token_embed.dense] == [
        (64, 32, "ReLU", "projector.0."),
        (32, 512, "Identity", "projector.2."),
    ]


@pytest.fixture
def causal(checkpoint: CheckpointFactory, tmp_path: Path) -> Path:
    return writable(checkpoint("qwen3", head="causal_lm"), tmp_path)


def test_a_causal_model_alone_is_ambiguous(causal: Path) -> None:
    with pytest.raises(CheckpointError, match=r"--task rerank .* --pooling cls\|last"):
        read_checkpoint(causal)
    assert read_checkpoint(causal, pooling="last").tasks == ("embed",)


def test_a_published_reranker_is_recognised_by_its_model_card(causal: Path) -> None:
    tokenizer = json.loads((causal / "tokenizer.json").read_text())
    vocab = [
        (piece[1:] if piece[1:] in ("yes", "no") else piece, score) for piece, score in tokenizer["model"]["vocab"]
    ]
    tokenizer["model"]["vocab"] = vocab
    (causal / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError, match="--task rerank"):
        read_checkpoint(causal, name="Qwen/Qwen3-Reranker-0.6B")
    asked, as_before = read_checkpoint(causal, task="rerank"), read_checkpoint(causal, task="classify")
    spec = read_checkpoint(add_card(causal, "qwen3-reranker"))
    assert asked.classify == as_before.classify
    assert spec.classify is not None
    assert spec.classify == asked.classify
    ids = [piece for piece, _ in vocab]
    assert (spec.classify.yes_token_id, spec.classify.no_token_id) == (ids.index("yes"), ids.index("no"))
    assert (spec.classify.kind, spec.classify.prompt_family) == ("llm_reranker", "qwen3-reranker")
    fact = next(fact for fact in spec.facts if fact.what == "pair_prompt")
    assert fact.value == "qwen3-reranker"
    assert fact.source.startswith("built in")
    assert spec.classify.activation == "sigmoid"


def test_a_reranker_without_its_answers(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("qwen2", head="causal_lm")
    with pytest.raises(CheckpointError, match=r"the token '1', which the tokenizer in .* lacks"):
        read_checkpoint(folder, task="rerank")


def test_logit_score_as_sentence_transformers_saves_it(causal: Path, tmp_path: Path) -> None:
    (causal / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}yes")
    CrossEncoder(str(causal), device="cpu").save(str(tmp_path / "saved"))
    spec = read_checkpoint(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "1_LogitScore" / "config.json").read_text())
    assert spec.classify is not None
    assert spec.classify.yes_token_id == config["true_token_id"]
    assert spec.classify.no_token_id == config["false_token_id"]
    assert (spec.classify.kind, spec.classify.prompt_family) == ("llm_reranker", "chat-template")
    assert spec.text.chat_template == (causal / "chat_template.jinja").read_text()


def test_logit_score_outside_of_the_vocabulary(causal: Path, tmp_path: Path) -> None:
    CrossEncoder(str(causal), device="cpu").save(str(tmp_path / "saved"))
    edit(tmp_path / "saved" / "1_LogitScore" / "config.json", true_token_id=10_000)
    with pytest.raises(CheckpointError, match=r"the token id 10000"):
        read_checkpoint(tmp_path / "saved")

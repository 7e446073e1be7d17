"""Labels of texts, pairs, tokens and of the caller's own, against transformers; and rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    TokenClassificationPipeline,
    ZeroShotClassificationPipeline,
)

from cenote import Engine, InputError, UnsupportedTaskError
from tiny import CheckpointFactory, tiny_checkpoint
from tiny_tokenizers import VOCAB_SIZE
from tolerances import assert_close

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"]
TEXTS = [" ".join(WORDS[i % len(WORDS)] for i in range(n)) for n in (1, 2, 5, 9, 13)]
FAMILIES = [
    *["bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert", "mpnet", "deberta-v2"],
    *["gte", "qwen2", "qwen3", "llama", "mistral", "gemma2", "gemma3_text"],
]
ACTIVATIONS = {
    "single_label_classification": lambda logits: logits.softmax(-1),
    "multi_label_classification": torch.sigmoid,
    "regression": lambda logits: logits,
}


def reference_logits(folder: Path, *texts: Any) -> torch.Tensor:
    """Return plain transformers' logits, one text or pair at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = []
    for text in zip(*texts, strict=True):
        encoded = tokenizer(*text, return_tensors="pt", truncation=True)
        accepted = {
            k: v for k, v in encoded.items() if k != "token_type_ids" or model.config.model_type != "distilbert"
        }
        with torch.inference_mode():
            rows.append(model(**accepted).logits[0])
    return torch.stack(rows)


@pytest.mark.parametrize("problem", ACTIVATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_equal_transformers(checkpoint: CheckpointFactory, family: str, problem: str) -> None:
    folder = checkpoint(family, head="sequence_classification", problem_type=problem)
    logits = reference_logits(folder, TEXTS)
    with Engine(folder) as engine:
        answers = engine.classify(TEXTS)
        assert_close(np.array([list(each.scores.values()) for each in answers]), ACTIVATIONS[problem](logits), "raw")
        raw = engine.classify(TEXTS, raw_scores=True)
        assert_close(np.array([list(each.scores.values()) for each in raw]), logits, "raw")
        assert [each.label for each in raw] == [f"LABEL_{i}" for i in logits.argmax(-1).tolist()]
        assert all(each.score == max(each.scores.values()) for each in answers)
        assert answers.usage.truncated == [False] * len(TEXTS)


def test_pairs_are_encoded_as_pairs(checkpoint: CheckpointFactory) -> None:
    folder = checkpoint("bert", head="sequence_classification")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    logits = reference_logits(folder, TEXTS, TEXTS[::-1])
    with Engine(folder) as engine:
        rows = [list(each.scores.values()) for each in engine.classify(pairs, raw_scores=True)]
        assert_close(np.array(rows), logits, "raw")


def nli_checkpoint(folder: Path) -> Path:
    labels = {0: "contradiction", 1: "neutral", 2: "entailment"}
    return tiny_checkpoint(
        "bert",
        folder,
        head="sequence_classification",
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
        problem_type="single_label_classification",
    )


@pytest.mark.parametrize("multi_label", [False, True])
def test_zero_shot_equals_the_pipeline(tmp_path: Path, multi_label: bool) -> None:
    folder = nli_checkpoint(tmp_path / "nli")
    pipeline = ZeroShotClassificationPipeline(
        model=AutoModelForSequenceClassification.from_pretrained(folder),
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )
    labels, template = ["fox", "dog", "home"], "the {} runs"
    reference = pipeline(TEXTS, labels, hypothesis_template=template, multi_label=multi_label)
    with Engine(folder) as engine:
        answers = engine.zero_shot(TEXTS, labels, hypothesis_template=template, multi_label=multi_label)
    for answer, expected in zip(answers, reference, strict=True):
        scores = dict(zip(expected["labels"], expected["scores"], strict=True))
        assert_close(np.array([answer.scores[label] for label in labels]), np.array([scores[each] for each in labels]))
        assert answer.label == expected["labels"][0]


def test_zero_shot_refusals(tmp_path: Path, checkpoint: CheckpointFactory) -> None:
    with Engine(nli_checkpoint(tmp_path / "nli")) as engine:
        for labels, template in [([], "{}"), ("fox", "{}"), (["fox", "fox"], "{}"), (["fox"], "no place")]:
            with pytest.raises(InputError):
                engine.zero_shot("text", labels, hypothesis_template=template)
    plain = checkpoint("bert", head="sequence_classification", problem_type="regression")
    with Engine(plain) as engine, pytest.raises(UnsupportedTaskError, match="entailment"):
        engine.zero_shot("text", ["fox"])


def ner_checkpoint(folder: Path, family: str = "bert") -> Path:
    labels = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    return tiny_checkpoint(
        family,
        folder,
        head="token_classification",
        num_labels=5,
        id2label=labels,
        label2id={name: i for i, name in labels.items()},
    )


@pytest.mark.parametrize("aggregation", ["none", "simple"])
@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
def test_spans_equal_the_pipeline(tmp_path: Path, family: str, aggregation: Any) -> None:
    folder = ner_checkpoint(tmp_path / "ner", family)
    pipeline = TokenClassificationPipeline(
        model=AutoModelForTokenClassification.from_pretrained(folder),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        aggregation_strategy=aggregation,
    )
    with Engine(folder) as engine:
        answers = engine.token_classify(TEXTS, aggregation=aggregation)
    key = "entity" if aggregation == "none" else "entity_group"
    assert any(answers)
    for text, spans in zip(TEXTS, answers, strict=True):
        expected = pipeline(text)
        assert [(span.label, span.start, span.end) for span in spans] == [
            (e[key], e["start"], e["end"]) for e in expected
        ]
        assert_close(np.array([span.score for span in spans]), np.array([e["score"] for e in expected]))
        assert all(span.text == text[span.start : span.end] for span in spans)


def test_token_ids_have_no_spans(tmp_path: Path) -> None:
    with Engine(ner_checkpoint(tmp_path / "ner")) as engine:
        with pytest.raises(InputError, match=r"engine\.pool"):
            engine.token_classify([[5, 6, 7]])  # type: ignore[list-item]
        with pytest.raises(InputError, match="aggregation"):
            engine.token_classify("text", aggregation="maximum")  # type: ignore[arg-type]


TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"


def test_outcome_rewards_are_raw_and_take_conversations(tmp_path: Path) -> None:
    folder = tiny_checkpoint("qwen2", tmp_path / "reward", head="sequence_classification", num_labels=1)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    chat = [{"role": "the", "content": "quick fox"}, {"role": "lazy", "content": "dog"}]
    written = "the quick fox lazy dog "
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0]
    with Engine(folder) as engine:
        assert_close(engine.reward(chat), expected, "raw")
        assert_close(engine.reward([chat, chat]), expected.repeat(2), "raw")
        assert_close(engine.reward(written.strip()), reference_logits(folder, [written.strip()])[0], "raw")


def test_process_rewards_have_one_number_for_each_step(tmp_path: Path) -> None:
    folder = tiny_checkpoint("qwen2", tmp_path / "prm", vocab_size=VOCAB_SIZE + 1)
    head = _make_process_reward_model(folder)
    tag = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<extra_0>")
    texts = [[7, 8, tag, 9, 10, 11, tag], [7, 8], [tag]]
    backbone = AutoModel.from_pretrained(folder).eval()
    with Engine(folder) as engine:
        answers = engine.reward(texts)
    assert [len(each) for each in answers] == [2, 0, 1]
    for ids, answer in zip(texts, answers, strict=True):
        with torch.inference_mode():
            hidden = backbone(torch.tensor([ids])).last_hidden_state[0][[i == tag for i in ids]]
            expected = head(hidden).softmax(-1)[:, 1]
        assert_close(answer, expected)


def _make_process_reward_model(folder: Path) -> torch.nn.Module:
    """Give a tiny backbone the two-layer scorer of Qwen's process reward models, and mark the step by a token."""
    torch.manual_seed(3)
    head = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    weights = {f"model.{key}": value for key, value in load_file(folder / "model.safetensors").items()}
    weights.update({f"score.{key}": value.detach() for key, value in head.state_dict().items()})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen2ForProcessRewardModel"]
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra_0>"]})
    tokenizer.save_pretrained(folder)
    return head


def test_models_of_another_kind_say_so(checkpoint: CheckpointFactory) -> None:
    with Engine(checkpoint("bert"), pooling="mean") as engine:
        for ask in (engine.classify, engine.token_classify, engine.reward):
            with pytest.raises(UnsupportedTaskError):
                ask("text")

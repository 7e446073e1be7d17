"""From checkpoints to answers: what a model's own files ask for, against transformers and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from pooling_batches import Step, split
from pooling_models import Served, serve, serve_spec
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.spec import ClassifySpec, MultiVectorSpec, TokenClassifySpec
from cenote.errors import CheckpointError, InputError, UnsupportedTaskError
from cenote.params import PoolingParams, Task
from cenote.pooling.build import build_pooler
from cenote.pooling.metadata import PoolingStates
from cenote.pooling.output import pack_outputs
from tiny import HIDDEN_SIZE, TinyDense, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

CheckpointFactory = Callable[..., Path]
ENCODER_TEXTS = [[2, 20, 31, 3], [2, 3], [2, *range(30, 60), 3], [2, 44, 3]]
DECODER_TEXTS = [[20, 31, 7], [9], list(range(30, 60)), [44, 45]]
TEXTS = ["the cat", "a pooling model reads a text once", "word"]


@pytest.mark.parametrize(
    "mode", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean")]
)
@pytest.mark.parametrize("include_prompt", [True, False])
def test_every_pooling_mode_of_sentence_transformers(tmp_path: Path, mode: Any, include_prompt: bool) -> None:
    folder = tiny_checkpoint("bert", tmp_path)
    width = HIDDEN_SIZE * (2 if isinstance(mode, tuple) else 1)
    add_sentence_transformers_files(
        folder,
        pooling_mode=mode,
        dense=[TinyDense(width, 24), TinyDense(24, 16, "GELU", bias=False, safetensors=False)],
        normalize=True,
        include_prompt=include_prompt,
    )
    reference = SentenceTransformer(str(folder), device="cpu")
    prompt = "a prompt "
    expected = reference.encode(TEXTS, prompt=prompt, batch_size=1)
    ids = [reference.tokenizer(prompt + text)["input_ids"] for text in TEXTS]
    skipped = 0 if include_prompt else len(reference.tokenizer(prompt)["input_ids"]) - 1
    served = serve(folder)
    for vector, row in zip(served.run_task("embed", ids, num_skipped_tokens=skipped), expected, strict=True):
        assert_close(vector, row)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "modernbert", "eurobert", "qwen3"])
@pytest.mark.parametrize("num_labels", [1, 3])
def test_sequence_classification(checkpoint: CheckpointFactory, family: str, num_labels: int) -> None:
    folder = checkpoint(family, head="sequence_classification", num_labels=num_labels)
    texts = DECODER_TEXTS if family == "qwen3" else ENCODER_TEXTS
    served = serve(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = served.run_task("classify", texts, use_activation=True)
    raw = served.run_task("classify", texts, use_activation=False)
    for ids, score, logits in zip(texts, scores, raw, strict=True):
        with torch.inference_mode():
            reference = model(input_ids=torch.tensor([ids])).logits[0]
        assert_close(logits, reference, "raw")
        activated = reference.sigmoid() if num_labels == 1 else reference.softmax(-1)
        assert_close(score, activated)


@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_every_way_in_which_eurobert_pools(checkpoint: CheckpointFactory, pooling: str) -> None:
    folder = checkpoint("eurobert", head="sequence_classification", classifier_pooling=pooling)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    raw = serve(folder).run_task("classify", ENCODER_TEXTS, use_activation=False)
    for ids, logits in zip(ENCODER_TEXTS, raw, strict=True):
        with torch.inference_mode():
            assert_close(logits, model(input_ids=torch.tensor([ids])).logits[0], "raw")


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert", "qwen2"])
def test_token_classification(checkpoint: CheckpointFactory, family: str) -> None:
    folder = checkpoint(family, head="token_classification")
    texts = DECODER_TEXTS if family == "qwen2" else ENCODER_TEXTS
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    for ids, probabilities in zip(texts, serve(folder).run_task("token_classify", texts), strict=True):
        with torch.inference_mode():
            assert_close(probabilities, model(input_ids=torch.tensor([ids])).logits[0].softmax(-1))


def reward_checkpoint(folder: Path, architecture: str, num_labels: int) -> Path:
    """A Qwen2 backbone with the two-layer `score` that Qwen's reward models have."""
    tiny_checkpoint("qwen2", folder)
    tensors = {f"model.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    generator = torch.Generator().manual_seed(4)
    for name, shape in (("0", (HIDDEN_SIZE, HIDDEN_SIZE)), ("2", (num_labels, HIDDEN_SIZE))):
        tensors[f"score.{name}.weight"] = torch.randn(shape, generator=generator) * 0.3
        tensors[f"score.{name}.bias"] = torch.randn(shape[0], generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = (folder / "config.json").read_text().replace('"Qwen2Model"', f'"{architecture}"')
    (folder / "config.json").write_text(config)
    return folder


def reward_logits(folder: Path, ids: list[int]) -> torch.Tensor:
    tensors = load_file(folder / "model.safetensors")
    backbone = AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        rows = backbone.eval()(input_ids=torch.tensor([ids])).last_hidden_state[0]
    hidden = torch.relu(rows @ tensors["score.0.weight"].T + tensors["score.0.bias"])
    return hidden @ tensors["score.2.weight"].T + tensors["score.2.bias"]


STEPS = [[10, 50, 11, 12, 50], [7, 8], [50]]


@pytest.fixture
def steps(tmp_path: Path) -> Served:
    spec = read_checkpoint(reward_checkpoint(tmp_path, "Qwen2ForProcessRewardModel", 2))
    assert spec.token_classify is not None
    return serve_spec(spec, token_classify=replace(spec.token_classify, step_tag_id=50))


def test_process_rewards(steps: Served) -> None:
    for ids, rewards in zip(STEPS, steps.run_task("token_classify", STEPS), strict=True):
        at = [i for i, token in enumerate(ids) if token == 50]
        assert_close(rewards, reward_logits(steps.spec.folder, ids).softmax(-1)[at])


def test_columns_are_cut_before_the_activation_is_chosen(steps: Served) -> None:
    """One column of two is a sigmoid, not a softmax that has lost a column."""
    for ids, rewards in zip(STEPS, steps.run_task("token_classify", STEPS, returned_token_ids=(1,)), strict=True):
        at = [i for i, token in enumerate(ids) if token == 50]
        assert_close(rewards, reward_logits(steps.spec.folder, ids)[at][:, [1]].sigmoid())


def test_mixed_steps_and_columns_in_one_pass(steps: Served) -> None:
    params = [
        PoolingParams(task="token_classify", step_tag_id=11, use_activation=False),
        PoolingParams(task="token_classify", returned_token_ids=(1, 0), use_activation=False),
        PoolingParams(task="token_classify", use_activation=False),
    ]
    answers = steps.run(STEPS, [{"token_classify": each} for each in params])
    first, second, third = (answer["token_classify"] for answer in answers)
    assert_close(first, reward_logits(steps.spec.folder, STEPS[0])[[2]], "raw")
    assert second.shape == (0, 2)
    assert_close(third, reward_logits(steps.spec.folder, STEPS[2]), "raw")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("returned_token_ids", (2,)),
        ("returned_token_ids", (0, -1)),
        ("returned_token_ids", ("0",)),
        ("step_tag_id", -1),
        ("step_tag_id", 10**6),
        ("step_tag_id", True),
    ],
)
def test_columns_and_tags_that_are_not_there_are_refused_at_the_door(steps: Served, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name) as caught:
        steps.pooler.verify_params("token_classify", PoolingParams(task="token_classify", **{name: value}))
    assert caught.value.param == name


def test_a_checkpoint_that_asks_for_columns_it_lacks_does_not_start(steps: Served) -> None:
    spec = steps.spec.token_classify
    assert spec is not None
    with pytest.raises(CheckpointError, match="returned_token_ids"):
        serve_spec(steps.spec, token_classify=replace(spec, returned_token_ids=(5,)))


def test_outcome_rewards_have_an_activation_only_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = reward_checkpoint(tmp_path, "Qwen2ForRewardModel", 1)
    served = serve(folder)
    wish: dict[Task, PoolingParams] = {task: PoolingParams(task=task) for task in ("classify", "token_classify")}
    for ids, answer in zip(DECODER_TEXTS, served.run(DECODER_TEXTS, [wish] * len(DECODER_TEXTS)), strict=True):
        logits = reward_logits(folder, ids)
        assert_close(answer["token_classify"], logits, "raw")
        assert_close(answer["classify"], logits[-1], "raw")
    for ids, score in zip(DECODER_TEXTS, served.run_task("classify", DECODER_TEXTS, use_activation=True), strict=True):
        assert_close(score, reward_logits(folder, ids)[-1].sigmoid())


def test_steps_are_for_reward_models(checkpoint: CheckpointFactory) -> None:
    served = serve(checkpoint("bert", head="token_classification"))
    with pytest.raises(InputError, match="process reward"):
        served.pooler.verify_params("token_classify", PoolingParams(task="token_classify", step_tag_id=1))
    with pytest.raises(UnsupportedTaskError, match="'embed'; it offers: token_classify"):
        served.pooler.verify_params("embed", PoolingParams(task="embed"))


def test_calibration_and_named_activations(checkpoint: CheckpointFactory) -> None:
    spec = read_checkpoint(checkpoint("bert", head="sequence_classification"))
    assert spec.classify is not None
    served = serve_spec(spec, classify=replace(spec.classify, activation="Tanh", logit_mean=2.65, logit_sigma=0.5))
    raw = serve_spec(spec).run_task("classify", ENCODER_TEXTS, use_activation=False)
    for logits, score in zip(raw, served.run_task("classify", ENCODER_TEXTS), strict=True):
        assert_close(score, np.tanh((logits - 2.65) / 0.5), "raw")


@pytest.mark.parametrize("asked", [None, 8, 16, 64])
def test_the_usual_size_of_a_checkpoint(checkpoint: CheckpointFactory, asked: int | None) -> None:
    spec = read_checkpoint(checkpoint("bert"), pooling="mean")
    assert spec.embed is not None
    embed = replace(spec.embed, normalize=True, matryoshka=(8, 16), default_dimensions=16)
    (full,) = serve_spec(spec).run_task("embed", ENCODER_TEXTS[:1])
    served = serve_spec(spec, embed=embed)
    served.pooler.verify_params("embed", PoolingParams(task="embed", dimensions=asked))
    (vector,) = served.run_task("embed", ENCODER_TEXTS[:1], dimensions=asked)
    cut = full[: asked or 16]
    assert_close(vector, cut / np.linalg.norm(cut))


def test_smaller_sizes_of_an_untrained_model_need_the_switch(checkpoint: CheckpointFactory) -> None:
    served = serve(checkpoint("bert"), pooling="mean")
    params = PoolingParams(task="embed", dimensions=8)
    with pytest.raises(InputError, match="any_dimensions"):
        served.pooler.verify_params("embed", params)
    build_pooler(served.spec, served.model, any_dimensions=True).verify_params("embed", params)


@pytest.mark.parametrize("task", ["classify", "token_classify", "embed_sparse"])
def test_a_head_that_the_model_lacks_is_named(checkpoint: CheckpointFactory, task: str) -> None:
    served = serve(checkpoint("bert"), pooling="mean")
    labels: dict[str, Any] = {"num_labels": 2, "labels": ("a", "b"), "activation": "auto"}
    parts = {
        "classify": ClassifySpec(kind="classifier", **labels),
        "token_classify": TokenClassifySpec(kind="token_labels", **labels),
        "embed_sparse": read_checkpoint(checkpoint("bert", head="masked_lm"), task="embed_sparse").embed_sparse,
    }
    with pytest.raises(CheckpointError, match=r"head|classifier"):
        build_pooler(replace(served.spec, embed=None, **{task: parts[task]}), served.model)


def test_a_damaged_dense_module_does_not_start(tmp_path: Path, checkpoint: CheckpointFactory) -> None:
    """BL-03: a module that cannot be read is never skipped."""
    folder = Path(copytree(checkpoint("bert"), tmp_path / "model"))
    add_sentence_transformers_files(folder, dense=[TinyDense(HIDDEN_SIZE, 8)])
    spec = read_checkpoint(folder)
    path = folder / "2_Dense" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"2_Dense/model\.safetensors"):
        serve_spec(spec)


def test_decoder_tasks_in_chunks_equal_whole(tmp_path: Path) -> None:
    """token_embed and token_classify of one decoder at once, in three steps, from one set of kept rows."""
    served = serve(reward_checkpoint(tmp_path, "Qwen2ForRewardModel", 1))
    part = serve_spec(served.spec, token_embed=MultiVectorSpec(dimensions=HIDDEN_SIZE))
    tasks: tuple[Task, ...] = ("token_embed", "token_classify", "classify")
    wish: dict[Task, PoolingParams] = {task: PoolingParams(task=task) for task in tasks}
    (whole,) = part.run([DECODER_TEXTS[2]], [wish])
    with torch.inference_mode():
        rows = AutoModel.from_pretrained(part.spec.folder)(
            input_ids=torch.tensor([DECODER_TEXTS[2]])
        ).last_hidden_state[0]
    lengths, state, found = [7, 20, 3], PoolingStates(), {}
    for index, chunk in enumerate(split(rows, lengths)):
        done = sum(lengths[: index + 1])
        step = Step([len(chunk)], tasks=[tasks], prompt_lens=[30], seq_lens=[done], states=[state])
        flat = pack_outputs(part.pooler(chunk, step.metadata()))
        host = {dtype: buffer.numpy() for dtype, buffer in flat.buffers.items()}
        found = {entry.task: entry.view(host) for entry in flat.entries}
        assert bool(found) is (done == 30)
    for task in tasks:
        assert_close(found[task], whole[task], "chunked")

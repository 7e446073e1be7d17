"""What a model is, is read from its files: a folder's name, a link or a hub cache changes nothing.

Each refusal of an ambiguous checkpoint names an option with which it works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from cenote import Engine
from cenote.checkpoint import ModelSpec, read_checkpoint
from cenote.checkpoint.source import locate
from cenote.cli import run
from cenote.config import EngineOptions
from cenote.errors import CenoteError
from reranker_folders import PAIR_TEMPLATE, add_card, convert_head, tiny_jina, tiny_reranker
from tiny import add_sentence_transformers_files, tiny_checkpoint
from vllm_cases import CASES

QUERY, DOCUMENTS = "what is the capital of france", ["paris is the capital", "the cat and the dog"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
QWEN3_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
Builder = Callable[[Path], Path]


def published(model_type: str, family: str, *words: str) -> Builder:
    return lambda folder: add_card(tiny_reranker(folder, model_type, words=words, limit=512), family)


def converted(folder: Path) -> Path:
    original = tiny_reranker(folder.with_name("original"), limit=512)
    tiny_reranker(folder, limit=512, head="sequence_classification", num_labels=1)
    return convert_head(original, folder, keep=True)


def logit_score(folder: Path) -> Path:
    plain = tiny_reranker(folder.with_name("original"), template=PAIR_TEMPLATE)
    CrossEncoder(str(plain), device="cpu").save(str(folder))
    return folder


def qwen3_embedding(folder: Path) -> Path:
    tiny_checkpoint("qwen3", folder)
    prompts = {"query": QWEN3_QUERY, "document": ""}
    return add_sentence_transformers_files(folder, pooling_mode="lasttoken", normalize=True, prompts=prompts)


def one_label(family: str, **options: Any) -> Builder:
    return lambda folder: tiny_reranker(
        folder, family, words=("yes", "no", "Yes", "1", "0"), head="sequence_classification", num_labels=1, **options
    )


LARGE = ("jina_reranker_v3", "splade_real")
"""Left out: tens of megabytes, and of a kind that another one has."""
MODELS: dict[str, tuple[Builder, dict[str, Any]]] = {
    name: (case.build, dict(case.cenote)) for name, case in CASES.items() if name not in LARGE
} | {
    "published Qwen3-Reranker": (published("qwen3", "qwen3-reranker", "yes", "no"), {}),
    "published mxbai-rerank-v2": (published("qwen2", "mxbai-rerank-v2", "1", "0"), {}),
    "published bge-reranker-v2-gemma": (published("gemma", "bge-reranker-v2-gemma", "Yes", "<bos>"), {}),
    "converted Qwen3-Reranker": (converted, {}),
    "LogitScore": (logit_score, {}),
    "listwise": (lambda folder: tiny_jina(folder, limit=2048), {}),
    "Qwen3-Embedding": (qwen3_embedding, {}),
    "reward of a decoder": (one_label("qwen3"), {}),
    "reward of a decoder, reranking": (one_label("qwen3", limit=512), {"task": "rerank"}),
}
SCORED = [name for name in MODELS if name not in CASES]


def elsewhere(folder: Path, place: Path) -> Iterator[Path]:
    """Yield the same files under other names: a copy, a link, a hub cache, where KServe mounts, and wrong names."""
    yield copytree(folder, place / "copy" / "model")
    (place / "current").symlink_to(folder, target_is_directory=True)
    yield place / "current"
    snapshot = place / "hub" / "models--someone--some-model" / "snapshots" / COMMIT
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        blob = place / "hub" / "models--someone--some-model" / "blobs" / str(abs(hash(path)))
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(path.read_bytes())
        linked = snapshot / path.relative_to(folder)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(blob)
    yield snapshot
    for name in ("models", "Qwen3-Reranker-0.6B", "mxbai-rerank-base-v2", "bge-reranker-v2-gemma", "a-reward-model"):
        (place / "mnt" / name).parent.mkdir(exist_ok=True)
        (place / "mnt" / name).symlink_to(folder, target_is_directory=True)
        yield place / "mnt" / name


def without_place(spec: ModelSpec, folder: Path) -> str:
    return repr(replace(spec, name="")).replace(str(folder), "@")


@pytest.mark.parametrize("name", MODELS)
def test_the_same_files_are_the_same_model_under_any_path(name: str, tmp_path: Path) -> None:
    build, options = MODELS[name]
    folder = build(tmp_path / "built" / "folder")
    read = without_place(read_checkpoint(folder, **options), folder)
    for other in elsewhere(folder, tmp_path):
        located = locate(str(other))
        assert located.name == other.name
        spec = read_checkpoint(located.folder, name=located.name, **options)
        assert without_place(spec, located.folder) == read, other
        assert without_place(read_checkpoint(other, name=f"Qwen/{other.name}", **options), other) == read


@pytest.mark.parametrize("name", SCORED)
def test_the_same_files_give_the_same_numbers_under_any_path(name: str, tmp_path: Path) -> None:
    build, options = MODELS[name]
    folder = build(tmp_path / "built" / "folder")
    with Engine(folder, dtype="float32", threads=1, **options) as engine:
        expected = _numbers(engine)
    for other in elsewhere(folder, tmp_path):
        with Engine(other, dtype="float32", threads=1, verify=False, **options) as engine:
            assert np.array_equal(_numbers(engine), expected), other


def _numbers(engine: Engine) -> np.ndarray[Any, Any]:
    is_reward = engine.spec.classify is not None and engine.spec.classify.kind == "reward"
    answer = engine.reward(DOCUMENTS) if is_reward else engine.score(QUERY, DOCUMENTS, raw_scores=True)
    return np.array(answer)


def no_pooling_mode(folder: Path) -> Path:
    add_sentence_transformers_files(tiny_checkpoint("bert", folder))
    (folder / "1_Pooling" / "config.json").write_text("{}")
    return folder


def transformer_only(folder: Path) -> Path:
    tiny_checkpoint("bert", folder)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def logit_score_without_template(folder: Path) -> Path:
    plain = tiny_reranker(folder.with_name("original"), limit=512)
    CrossEncoder(str(plain), device="cpu").save(str(folder))
    return folder


def dense(**config: Any) -> Builder:
    return lambda folder: add_sentence_transformers_files(tiny_checkpoint("bert", folder, **config), normalize=True)


def causal(family: str) -> Builder:
    return lambda folder: tiny_reranker(folder, family, words=("yes", "no", "Yes", "1", "0"), limit=512)


def opened(engine: Engine) -> object:
    return engine.info


def ranked(engine: Engine) -> object:
    return engine.rerank(QUERY, DOCUMENTS)


def rewarded(engine: Engine) -> object:
    return engine.reward(DOCUMENTS)


def cut(engine: Engine) -> object:
    return engine.embed(DOCUMENTS, dimensions=10)


REFUSED: dict[str, tuple[Builder, Callable[[Engine], object], set[str]]] = {
    "masked language model": (CASES["splade"].build, opened, {"task", "pooling"}),
    "encoder alone": (lambda folder: tiny_checkpoint("bert", folder), opened, {"pooling"}),
    "chain of a Transformer": (transformer_only, opened, {"pooling"}),
    "pooling without a mode": (no_pooling_mode, opened, {"pooling"}),
    "Qwen3 alone": (causal("qwen3"), ranked, {"task", "pooling"}),
    "Llama alone": (causal("llama"), ranked, {"prompt_family", "pooling"}),
    "LogitScore without a template": (logit_score_without_template, ranked, {"prompt_family"}),
    "reward that is asked to rank": (one_label("qwen3", limit=512), ranked, {"task"}),
    "reward without a known prompt": (one_label("llama", limit=512), ranked, {"task", "prompt_family"}),
    "cross-encoder that is asked for rewards": (
        lambda folder: tiny_checkpoint("bert", folder, head="sequence_classification", num_labels=1),
        rewarded,
        {"task"},
    ),
    "smaller vectors": (dense(), cut, {"any_dimensions"}),
    "another size than those trained for": (dense(matryoshka_dimensions=[16, 32]), cut, {"any_dimensions"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_refusal_names_the_options_that_settle_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build, use, expected = REFUSED[name]
    folder = build(tmp_path / "model")
    found = list(_settled(folder, use, {}))
    assert {option for options in found for option in options} == expected
    for options in found:
        flags = [part for option, value in options.items() for part in _flag(option, value)]
        assert run(["inspect", str(folder), "--no-weights", *flags]) == 0, capsys.readouterr().err


def _settled(folder: Path, use: Callable[[Engine], object], options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every set of options with which `use` works, following what the errors say."""
    refusal = _refusal(folder, use, options)
    if refusal is None:
        assert options
        yield options
        return
    named = list(_named(refusal))
    assert named, refusal
    for option, value in named:
        assert option not in options, refusal
        yield from _settled(folder, use, {**options, option: value})


def _refusal(folder: Path, use: Callable[[Engine], object], options: dict[str, Any]) -> str | None:
    try:
        with Engine(folder, dtype="float32", threads=1, verify=False, **options) as engine:
            use(engine)
    except CenoteError as error:
        return str(error)
    return None


def _named(message: str) -> Iterator[tuple[str, Any]]:
    """Read the options of a message, each in both spellings."""
    for flag, values, python, value in re.findall(r"--([a-z-]+)(?: ([\w|-]+))? \(in Python (\w+)=(.*?)\)", message):
        assert python == flag.replace("-", "_")
        assert value in ("True", "...", repr(values))
        yield from ((python, each) for each in (values.split("|") if values else [True]))


def _flag(option: str, value: Any) -> list[str]:
    name = f"--{option.replace('_', '-')}"
    return [name] if value is True else [name, str(value)]


def test_help_lists_what_the_options_take(tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path / "model")
    for option in ("task", "prompt_family"):
        with pytest.raises(CenoteError, match="choose one of: ") as caught:
            read_checkpoint(folder, **{option: "?"})
        known = str(caught.value).rpartition(": ")[2]
        text = EngineOptions.__dataclass_fields__[option].metadata["help"]
        assert text.endswith(f": {known}.")

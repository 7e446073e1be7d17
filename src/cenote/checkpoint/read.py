"""From a folder to a `ModelSpec`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cenote.checkpoint import bge_m3, embedding, labels, multivector, rerankers, rewards, sparse
from cenote.checkpoint.ambiguous import no_recogniser
from cenote.checkpoint.chat_template import read_chat_template
from cenote.checkpoint.checkpoint import Checkpoint, open_checkpoint
from cenote.checkpoint.families import is_causal, type_vocab_size
from cenote.checkpoint.limits import Limit, expansion_limit, input_limit, position_limit
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.source import locate
from cenote.checkpoint.spec import ClassifySpec, Fact, ModelSpec, PromptFamily, TextSpec
from cenote.config import EngineOptions
from cenote.errors import CheckpointError
from cenote.params import TASKS

Recogniser = Callable[[Checkpoint], Parts | None]

_log = logging.getLogger(__name__)

_USES = ("rerank", "reward")
"""What the option task may say besides a task: what the one column of a classification head is for."""
_RECOGNISERS: tuple[Recogniser, ...] = (
    rerankers.listwise,
    rewards.recognise,
    multivector.stanford,
    bge_m3.recognise,
    multivector.from_modules,
    sparse.from_modules,
    rerankers.logit_score,
    embedding.from_modules,
    rerankers.converted,
    rerankers.published,
    labels.sequence_classification,
    labels.token_classification,
    sparse.asked_for,
    embedding.plain,
)
"""The first that answers decides: the more specific a sign, the earlier it is looked for."""


def read_checkpoint(
    folder: Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    task: str | None = None,
    pooling: str | None = None,
    prompt_family: str | None = None,
) -> ModelSpec:
    """Read everything that a checkpoint says about itself, without loading a weight or touching the network.

    `task`, `pooling` and `prompt_family` choose where the files leave it open; the folder's name and `name` never do.
    Raises `CheckpointError` where the checkpoint cannot be served right: what is missing, unknown or ambiguous is
    named, with the options that would settle it.
    """
    _check_choice("task", task, (*TASKS, *_USES))
    _check_choice("prompt_family", prompt_family, rerankers.PROMPT_FAMILIES)
    checkpoint = open_checkpoint(Path(folder), name=name, task=task, pooling=pooling, prompt_family=prompt_family)
    parts = _recognise(checkpoint)
    limit = input_limit(checkpoint.config, checkpoint.module_settings, checkpoint.tokenizer_settings)
    if parts.expansion is not None:
        limit = expansion_limit(limit, position_limit(checkpoint.config), parts.expansion)
    spec = ModelSpec(
        name=checkpoint.name,
        folder=checkpoint.folder,
        root=checkpoint.root,
        revision=revision,
        config=checkpoint.config,
        model_type=checkpoint.config["model_type"],
        architecture=checkpoint.architecture,
        hidden_size=checkpoint.hidden_size,
        vocab_size=checkpoint.vocab_size,
        is_causal=is_causal(checkpoint.config),
        weight_files=checkpoint.weights.files,
        text=_text(checkpoint, parts, limit),
        embed=parts.embed,
        embed_sparse=parts.embed_sparse,
        token_embed=parts.token_embed,
        classify=parts.classify,
        token_classify=parts.token_classify,
        listwise=parts.listwise,
        facts=_facts(checkpoint, limit, _pair_prompt(parts.classify)) + parts.facts,
    )
    if task is not None and not _offers(spec, task):
        raise CheckpointError(f"{spec.name} does not offer the task {task!r}; it offers: {', '.join(spec.tasks)}")
    if prompt_family is not None and spec.text.pair_prompt != prompt_family:
        raise CheckpointError(f"{spec.name} is no language model that scores pairs: leave prompt_family out")
    if task is None and any(labels.REWARD_BY_DEFAULT in fact.source for fact in spec.facts):
        _log.warning("%s is read as a reward model: %s", spec.name, labels.REWARD_BY_DEFAULT)
    return spec


def read_model(model: str, options: EngineOptions) -> ModelSpec:
    """Find `model`, a folder or a hub id, and read it as `options` say. Raises `CheckpointError`."""
    located = locate(model, revision=options.revision)
    return read_checkpoint(
        located.folder,
        name=located.name,
        revision=located.revision,
        task=options.task,
        pooling=options.pooling,
        prompt_family=options.prompt_family,
    )


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise CheckpointError(f"the {name} {value!r} is not known; choose one of: {', '.join(known)}")


def _offers(spec: ModelSpec, task: str) -> bool:
    """Return whether a model can do what the option task asks for."""
    if task == "rerank":
        ranks = spec.listwise or spec.token_embed or spec.embed
        return ranks is not None or (spec.classify is not None and spec.classify.scores_pairs)
    if task == "reward":
        rewards = (spec.classify, spec.token_classify)
        return any(part is not None and part.kind in ("reward", "process_reward") for part in rewards)
    return task in spec.tasks


def _recognise(checkpoint: Checkpoint) -> Parts:
    for recognise in _RECOGNISERS:
        parts = recognise(checkpoint)
        if parts is not None:
            return parts
    raise no_recogniser(checkpoint)


def _text(checkpoint: Checkpoint, parts: Parts, limit: Limit) -> TextSpec:
    prompts = _prompts(checkpoint.settings) if parts.prompts is None else dict(parts.prompts)
    default = checkpoint.settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise CheckpointError(
            f"config_sentence_transformers.json has default_prompt_name {default!r}, but only these prompts: "
            f"{', '.join(prompts) or 'none'}"
        )
    return TextSpec(
        tokenizer_folder=checkpoint.folder,
        max_length=limit.tokens,
        max_length_reason=limit.reason,
        do_lower_case=bool(checkpoint.module_settings.get("do_lower_case", False)),
        prompts=prompts,
        default_prompt_name=default,
        uses_token_types=type_vocab_size(checkpoint.config) > 1,
        expansion=parts.expansion,
        chat_template=read_chat_template(checkpoint),
        pair_prompt=_pair_prompt(parts.classify),
        prefers_pair_prompt=checkpoint.prompt_family is not None,
    )


def _pair_prompt(classify: ClassifySpec | None) -> PromptFamily | None:
    """Return where the prompt of pairs comes from: a language model that scores them always needs one."""
    if classify is None:
        return None
    return classify.prompt_family or ("chat-template" if classify.kind == "llm_reranker" else None)


def _prompts(settings: Mapping[str, Any]) -> dict[str, str]:
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(value, str | None) for value in prompts.values()):
        raise CheckpointError(f"config_sentence_transformers.json has prompts that are not texts: {prompts!r}")
    return {name: value for name, value in prompts.items() if value is not None}


def _facts(checkpoint: Checkpoint, limit: Limit, pair_prompt: PromptFamily | None) -> tuple[Fact, ...]:
    facts = [
        Fact(what="architecture", value=checkpoint.architecture, source="config.json"),
        Fact(what="weights", value=f"{len(checkpoint.weights.tensors)} names", source=_files(checkpoint)),
        Fact(what="max_length", value=str(limit.tokens), source=limit.reason),
    ]
    prompts = _prompts(checkpoint.settings)
    if prompts:
        facts.append(Fact(what="prompts", value=", ".join(prompts), source="config_sentence_transformers.json"))
    if checkpoint.module_settings.get("do_lower_case"):
        facts.append(Fact(what="do_lower_case", value="true", source="sentence-transformers' settings"))
    if pair_prompt == "chat-template":
        facts.append(Fact(what="pair_prompt", value="chat template", source="the checkpoint's own"))
    elif pair_prompt is not None:
        source = "built in; a chat template of the checkpoint that takes pairs comes first"
        source = source if checkpoint.prompt_family is None else "the option prompt_family"
        facts.append(Fact(what="pair_prompt", value=pair_prompt, source=source))
    return tuple(facts)


def _files(checkpoint: Checkpoint) -> str:
    files = checkpoint.weights.files
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"

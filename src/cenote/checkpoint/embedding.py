"""Dense embedding: a sentence-transformers chain, or a plain backbone with the pooling that the user names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from cenote.checkpoint.checkpoint import Checkpoint
from cenote.checkpoint.dense import read_dense
from cenote.checkpoint.modules import Module
from cenote.checkpoint.parts import Parts
from cenote.checkpoint.pooling_config import check_width, include_prompt, pooling_modes
from cenote.checkpoint.spec import DenseSpec, EmbedSpec, Fact, MultiVectorSpec, PoolingMode
from cenote.errors import CheckpointError

POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)


_SIZE_KEYS = ("matryoshka_dimensions", "matryoshka_dims")
_CARD_SIZES = re.compile(r'"matryoshka_dims":\s*\[(\s*[1-9]\d{0,5}(?:\s*,\s*[1-9]\d{0,5})*\s*)\]')


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """A published family that was trained to be cut, without a key that says so; `sizes` is empty where to any size."""

    name: str
    model_type: str
    modes: tuple[PoolingMode, ...]
    num_dense: int
    query: str
    sizes: tuple[int, ...] = ()


_TRAINED = (
    _Trained(
        name="Qwen3-Embedding",
        model_type="qwen3",
        modes=("last",),
        num_dense=0,
        query="Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
    ),
    _Trained(
        name="EmbeddingGemma",
        model_type="gemma3_text",
        modes=("mean",),
        num_dense=2,
        query="task: search result | query: ",
        sizes=(128, 256, 512),
    ),
)
"""Sources: their model cards and `config_sentence_transformers.json`."""


@dataclass(frozen=True)
class _Chain:
    """The modules behind a Pooling module."""

    dense: tuple[DenseSpec, ...]
    normalize: bool


def from_modules(checkpoint: Checkpoint) -> Parts | None:
    """Recognise Transformer, Pooling, any number of Dense, Normalize, in this order.

    Raises `CheckpointError` for modules in an order that Cenote does not run.
    """
    rest = [module for module in checkpoint.modules[1:] if module.kind != "Dropout"]
    if not rest or rest[0].kind != "Pooling":
        return None
    _refuse_other_uses(checkpoint)
    modes, source = _modes(checkpoint, rest[0])
    width = checkpoint.hidden_size * len(modes)
    chain = _chain(checkpoint, rest[1:], width)
    width = chain.dense[-1].out_features if chain.dense else width
    embed = EmbedSpec(
        modes=modes,
        include_prompt=include_prompt(rest[0].config),
        dense=chain.dense,
        normalize=chain.normalize,
        default_dimensions=_truncate_dim(checkpoint, width),
        dimensions=width,
    )
    sizes, said_by = _trained_sizes(checkpoint, embed)
    embed = replace(embed, matryoshka=sizes)
    return Parts(embed=embed, token_embed=_token_embed(checkpoint, chain), facts=_facts(embed, source, said_by))


def plain(checkpoint: Checkpoint) -> Parts | None:
    """Recognise a backbone alone, where the user said how to pool it, or asked for its tokens."""
    embed, said_by = None, ""
    if checkpoint.pooling is not None:
        embed = EmbedSpec(modes=(_option(checkpoint.pooling),), dimensions=checkpoint.hidden_size)
        sizes, said_by = _trained_sizes(checkpoint, embed)
        embed = replace(embed, matryoshka=sizes)
    token_embed = _token_embed(checkpoint, _Chain((), False))
    if embed is None and token_embed is None:
        return None
    facts = () if embed is None else _facts(embed, "the option pooling", said_by)
    return Parts(embed=embed, token_embed=token_embed, facts=facts)


def _modes(checkpoint: Checkpoint, module: Module) -> tuple[tuple[PoolingMode, ...], str]:
    if checkpoint.pooling is not None:
        return (_option(checkpoint.pooling),), "the option pooling"
    check_width(module, checkpoint.hidden_size)
    return pooling_modes(module), f"{module.folder.name}/config.json"


def _option(pooling: str) -> PoolingMode:
    mode = next((mode for mode in POOLING_MODES if mode == pooling), None)
    if mode is None:
        raise CheckpointError(f"the pooling {pooling!r} is not known; choose one of: {', '.join(POOLING_MODES)}")
    return mode


def _chain(checkpoint: Checkpoint, modules: Sequence[Module], width: int) -> _Chain:
    dense: list[DenseSpec] = []
    normalize = False
    for module in modules:
        if module.kind not in ("Dense", "Normalize") or (normalize and module.kind != "Normalize"):
            order = ", ".join(each.kind for each in checkpoint.modules)
            raise CheckpointError(
                f"modules.json of {checkpoint.name} chains {order}; "
                f"Cenote runs Transformer, Pooling, Dense ..., Normalize"
            )
        if module.config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
            raise CheckpointError(
                f"{module.folder / 'config.json'} works on {module.config['module_input_name']!r}, "
                f"which Cenote does not run behind a Pooling module"
            )
        if module.kind == "Normalize":
            normalize = True
            continue
        dense.append(read_dense(module, width))
        width = dense[-1].out_features
    return _Chain(tuple(dense), normalize)


def _trained_sizes(checkpoint: Checkpoint, embed: EmbedSpec) -> tuple[tuple[int, ...] | None, str]:
    """Return the sizes that the model was trained to be cut to, as in `EmbedSpec.matryoshka`, and what says so."""
    found = _sizes_of_config(checkpoint, embed) or _sizes_of_family(checkpoint, embed) or _sizes_of_card(checkpoint)
    sizes, source = found or (None, "truncate_dim in config_sentence_transformers.json")
    smaller = None if sizes is None else tuple(size for size in sizes if size <= embed.dimensions)
    if sizes and not smaller:
        smaller = None
    if smaller != () and embed.default_dimensions is not None:
        smaller = (*(smaller or ()), embed.default_dimensions)
    return None if smaller is None else tuple(sorted(set(smaller))), source


def _sizes_of_config(checkpoint: Checkpoint, embed: EmbedSpec) -> tuple[tuple[int, ...], str] | None:
    key = next((key for key in _SIZE_KEYS if checkpoint.config.get(key)), None)
    if key is None:
        return ((), "is_matryoshka in config.json") if checkpoint.config.get("is_matryoshka") is True else None
    sizes, width = checkpoint.config[key], embed.dimensions
    if not isinstance(sizes, list | tuple) or not all(isinstance(size, int) and 0 < size <= width for size in sizes):
        raise CheckpointError(f"config.json of {checkpoint.name} has {key} {sizes!r}, not sizes up to {width}")
    return tuple(sizes), f"{key} in config.json"


def _sizes_of_family(checkpoint: Checkpoint, embed: EmbedSpec) -> tuple[tuple[int, ...], str] | None:
    """Recognise a family by its backbone, its pooling and the prompt that its queries were trained with."""
    query = (checkpoint.settings.get("prompts") or {}).get("query")
    made = (checkpoint.config["model_type"], embed.modes, len(embed.dense), embed.normalize, query)
    for family in _TRAINED:
        if made == (family.model_type, family.modes, family.num_dense, True, family.query):
            return family.sizes, f"made like {family.name}: {family.model_type}, its pooling and its query prompt"
    return None


def _sizes_of_card(checkpoint: Checkpoint) -> tuple[tuple[int, ...], str] | None:
    """Read the parameters of the MatryoshkaLoss that sentence-transformers writes into the model card."""
    found = _CARD_SIZES.search(checkpoint.model_card)
    return None if found is None else (tuple(map(int, found[1].split(","))), "MatryoshkaLoss in README.md")


def _truncate_dim(checkpoint: Checkpoint, width: int) -> int | None:
    value = checkpoint.settings.get("truncate_dim")
    if value is None or (isinstance(value, int) and value >= width):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"config_sentence_transformers.json has truncate_dim {value!r}, which is not a size")
    return value


def _token_embed(checkpoint: Checkpoint, chain: _Chain) -> MultiVectorSpec | None:
    """Return normalised token vectors, offered where asked for: the Dense modules then work on each token."""
    if checkpoint.task != "token_embed":
        return None
    dense = chain.dense
    if dense and dense[0].in_features != checkpoint.hidden_size:
        raise CheckpointError(
            f"{checkpoint.name} joins several poolings before its Dense module: it has no token vectors"
        )
    return MultiVectorSpec(dense=dense, dimensions=dense[-1].out_features if dense else checkpoint.hidden_size)


def _refuse_other_uses(checkpoint: Checkpoint) -> None:
    saved_as = checkpoint.settings.get("model_type", "SentenceTransformer")
    if saved_as != "SentenceTransformer":
        raise CheckpointError(
            f"{checkpoint.name} is a {saved_as} of sentence-transformers with a Pooling module, which Cenote does not "
            f"run"
        )
    modalities = checkpoint.module_settings.get("modality_config") or {}
    if "message" in modalities:
        raise CheckpointError(
            f"sentence_bert_config.json of {checkpoint.name} sends texts through a chat template before they are "
            f"embedded, which Cenote does not do yet"
        )


def _facts(embed: EmbedSpec, source: str, sizes_said_by: str) -> tuple[Fact, ...]:
    facts = [Fact(what="pooling", value=" + ".join(embed.modes), source=source)]
    facts += [
        Fact(
            what="dense",
            value=f"{dense.in_features} -> {dense.out_features}, {dense.activation}"
            + ("" if dense.bias else ", no bias"),
            source=f"{dense.weights.path.parent.name}/{dense.weights.path.name}",
        )
        for dense in embed.dense
    ]
    if embed.normalize:
        facts.append(Fact(what="normalize", value="L2", source="modules.json"))
    if not embed.include_prompt:
        facts.append(Fact(what="prompt", value="left out of the pooling", source=source))
    if embed.matryoshka is not None:
        sizes = ", ".join(map(str, embed.matryoshka)) or f"any up to {embed.dimensions}"
        facts.append(Fact(what="matryoshka", value=sizes, source=sizes_said_by))
    return tuple(facts)

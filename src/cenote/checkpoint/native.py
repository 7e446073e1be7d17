"""Hub configurations that ask for their own code, mapped to the classes that transformers has for the same model.

Code of a checkpoint is never run. Where transformers 5.24 carries the same architecture natively, and converts the same
weight names, the configuration is translated; everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cenote.checkpoint.families import FAMILIES
from cenote.checkpoint.schema import GTE, GTE_SCALING, checked
from cenote.errors import CheckpointError

Config = dict[str, Any]

_SAME_AS_NATIVE = frozenset({"gte", "eurobert", "jina_embeddings_v3"})
"""Families that went from the hub into transformers under the same `model_type` and configuration keys."""
_PLAIN_BACKBONES = frozenset({"Qwen2ForRewardModel", "Qwen2ForProcessRewardModel", "JinaForRanking"})
"""Architectures whose own code only adds a head, which Cenote has, on an unchanged backbone of transformers."""


def to_native(config: Config) -> Config:
    """Return `config` in transformers' own spelling, without `auto_map`, or raise `CheckpointError`."""
    config = dict(config)
    model_type = str(config.get("model_type"))
    auto_map = config.pop("auto_map", None)
    translate = _TRANSLATIONS.get(model_type)
    if translate is not None:
        return translate(config)
    if auto_map and not _runs_natively(model_type, config):
        raise CheckpointError(
            f"config.json of this {model_type} asks for code of its own (auto_map: {_classes(auto_map)}), and Cenote "
            f"runs no code from a checkpoint. Look for a converted one (often named ...-hf) that transformers loads "
            f"without trust_remote_code"
        )
    if config.get("position_embedding_type", "absolute") != "absolute" and model_type in _ABSOLUTE:
        raise CheckpointError(
            f"config.json asks for {config['position_embedding_type']!r} positions, which transformers' "
            f"{model_type} does not have; such a checkpoint needs code of its own"
        )
    return config


_ABSOLUTE = frozenset(name for name, family in FAMILIES.items() if family.positions in ("absolute", "offset"))


def _runs_natively(model_type: str, config: Mapping[str, Any]) -> bool:
    architectures = set(config.get("architectures") or ())
    causal_choice = model_type == "qwen2" and "is_causal" in config
    return model_type in _SAME_AS_NATIVE or causal_choice or bool(architectures & _PLAIN_BACKBONES)


def _classes(auto_map: object) -> str:
    values = auto_map.values() if isinstance(auto_map, dict) else [auto_map]
    names = (value[0] if isinstance(value, list) and value else value for value in values)
    return ", ".join(sorted({str(name)[:80] for name in names}))


def _refuse_unlike(config: Mapping[str, Any], expected: Mapping[str, tuple[object, ...]], family: str) -> None:
    for key, allowed in expected.items():
        if key in config and config[key] not in allowed:
            raise CheckpointError(
                f"config.json has {key}={config[key]!r}, which transformers' {family} cannot do; it would need the "
                f"checkpoint's own code"
            )


_NOMIC_FIXED: Mapping[str, tuple[object, ...]] = {
    "activation_function": ("swiglu",),
    "causal": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "num_experts": (0, None),
    "moe_every_n_layers": (0, None),
    "parallel_block": (False,),
    "prenorm": (False,),
    "qkv_proj_bias": (False,),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (None,),
    "rotary_scaling_factor": (None,),
    "use_rms_norm": (False, None),
}
_NOMIC_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}


def _nomic(config: Config) -> Config:
    """Translate nomic-ai's GPT-2 style keys (nomic-embed-text-v1 and v1.5); transformers' own spelling passes."""
    _refuse_unlike(config, _NOMIC_FIXED, "NomicBert")
    if "hidden_size" in config:
        return config
    native = {name: value for name, value in config.items() if name not in _NOMIC_NAMES and name not in _NOMIC_FIXED}
    native |= {native_name: config[name] for name, native_name in _NOMIC_NAMES.items() if config.get(name) is not None}
    return native | {"hidden_act": "silu"}


_NEW_FIXED: Mapping[str, tuple[object, ...]] = {
    "position_embedding_type": ("rope",),
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
}


def _new(config: Config) -> Config:
    """Translate Alibaba's `NewModel` (gte-*-v1.5, gte-multilingual) to transformers' GTE.

    Its fixed NTK scaling (kexue.fm/archives/9706) raises the rotary base by the factor and divides every frequency by
    `factor ** (2 / head size)`: transformers' `linear` scaling says just that.
    """
    config = checked(config, GTE, "config.json")
    _refuse_unlike(config, _NEW_FIXED, "GTE")
    native = {key: value for key, value in config.items() if key not in ("rope_scaling", "rope_theta", *_NEW_FIXED)}
    theta, scaling = float(config.get("rope_theta", 10000.0)), config.get("rope_scaling")
    native["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if scaling:
        scaling = checked(scaling, GTE_SCALING, "rope_scaling in config.json")
        _refuse_unlike(scaling, {"type": ("ntk",), "mixed_b": (None,)}, "GTE")
        if not {"factor"} <= set(scaling) or not {"hidden_size", "num_attention_heads"} <= set(config):
            raise CheckpointError("config.json must give hidden_size, num_attention_heads and rope_scaling.factor")
        factor, head_size = float(scaling["factor"]), config["hidden_size"] // config["num_attention_heads"]
        native["rope_parameters"] = {
            "rope_type": "linear",
            "rope_theta": theta * factor,
            "factor": factor ** (2 / head_size),
        }
    native["architectures"] = [f"Gte{name.removeprefix('New')}" for name in config.get("architectures") or ()]
    return native | {"model_type": "gte"}


_TRANSLATIONS: Mapping[str, Callable[[Config], Config]] = {"nomic_bert": _nomic, "new": _new}

"""Folders that hold no model that Cenote runs: each is refused by its name, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cenote.errors import CheckpointError

_QUANTISED_FILES = {"quantize_config.json": "GPTQ", "quant_config.json": "AWQ"}
_OTHER_FORMATS = {
    "*.gguf": "GGUF",
    "*.onnx": "ONNX",
    "onnx/*.onnx": "ONNX",
    "*.tflite": "TFLite",
    "openvino/*.xml": "OpenVINO",
    "openvino_model.xml": "OpenVINO",
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "rust_model.ot": "rust-bert",
}


def refuse_adapter(folder: Path) -> None:
    """Refuse a PEFT adapter: its numbers are those of another model that it would have to be merged into."""
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} holds a PEFT adapter (adapter_config.json), which Cenote does not apply; merge it into its base "
            f"model (merge_and_unload, then save_pretrained) and serve the result"
        )


def refuse_quantised(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse quantised weights by the name of their method."""
    method = next((name for file, name in _QUANTISED_FILES.items() if (folder / file).is_file()), None)
    quantization = config.get("quantization_config") or config.get("compression_config")
    if quantization:
        named = quantization.get("quant_method") if isinstance(quantization, dict) else None
        method = str(named or "unknown")
    if method is not None:
        raise CheckpointError(
            f"{folder} is quantised ({method}), which Cenote does not run; use the full-precision checkpoint"
        )


def missing_weights(folder: Path) -> CheckpointError:
    """Return the error for a folder without weights, naming the other format that it holds, if any."""
    for pattern, name in _OTHER_FORMATS.items():
        found = next(iter(sorted(folder.glob(pattern))), None)
        if found is not None:
            return CheckpointError(
                f"{folder} has its weights as {name} only ({found.name}), which Cenote does not run; use the "
                f"checkpoint with model.safetensors"
            )
    return CheckpointError(
        f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin, whole or in shards with an index; "
        f"fetch the checkpoint again"
    )

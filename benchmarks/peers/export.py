"""Export a BERT-like encoder for the peers that need it: ONNX, ONNX with dynamic int8, OpenVINO with calibrated int8.

Usage: export.py MODEL_FOLDER EXPORTS_FOLDER CALIBRATION_TEXTS. Runs in the `onnx` environment. The calibration texts
are other ones than those that are measured.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    model, exports, texts = (Path(argument) for argument in sys.argv[1:4])
    exports.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (model / file).exists():
            shutil.copy(model / file, exports / file)
    _to_onnx(model, exports / "model.onnx")
    _to_dynamic_int8(exports / "model.onnx", exports / "model-int8.onnx")
    _to_calibrated_int8(model, exports, json.loads(texts.read_text(encoding="utf-8")))


def _inputs(model: Path, texts: list[str]) -> dict[str, torch.Tensor]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    return dict(encoded)


def _to_onnx(model: Path, target: Path) -> None:
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(str(model), local_files_only=True, attn_implementation="eager").eval()

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.encoder(**dict(zip(names, inputs, strict=True))).last_hidden_state
            return hidden

    inputs = _inputs(model, ["a first text", "and a second, longer text"])
    names = list(inputs)
    axes = {name: {0: "batch", 1: "length"} for name in (*inputs, "last_hidden_state")}
    torch.onnx.export(
        HiddenStates(),
        tuple(inputs.values()),
        str(target),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        dynamo=False,
        opset_version=17,
    )


def _to_dynamic_int8(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(source), str(target), per_channel=True, weight_type=QuantType.QInt8, reduce_range=True)


def _to_calibrated_int8(model: Path, exports: Path, texts: list[str]) -> None:
    import nncf
    import openvino as ov

    def feed(text: str) -> dict[str, Any]:
        return {name: tensor.numpy() for name, tensor in _inputs(model, [text]).items()}

    quantized = nncf.quantize(
        ov.convert_model(str(exports / "model.onnx")),
        nncf.Dataset(texts, feed),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(texts),
    )
    ov.save_model(quantized, str(exports / "openvino-int8.xml"))


if __name__ == "__main__":
    main()

"""Export an encoder for the peers that need it, as one of: ONNX, ONNX with dynamic int8, OpenVINO with calibrated int8.

Usage: export.py FILE MODEL_FOLDER EXPORTS_FOLDER CALIBRATION_TEXTS, where FILE is a name in `EXPORTS`. Runs in the
`onnx` environment. The calibration texts are other ones than those that are measured. Files are written beside them
and appear in the folder when they are whole.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Job(NamedTuple):
    """The model's folder, that of earlier exports, and the JSON list of the calibration texts."""

    model: Path
    exports: Path
    texts: Path


def main() -> None:
    file, job = sys.argv[1], Job(*(Path(argument) for argument in sys.argv[2:5]))
    job.exports.mkdir(parents=True, exist_ok=True)
    _copy_tokenizer(job)
    with tempfile.TemporaryDirectory(dir=job.texts.parent) as folder:
        EXPORTS[file](job, Path(folder) / file)
        # The file that the others are looked for by comes last.
        for path in sorted(Path(folder).iterdir(), key=lambda path: path.name == file):
            path.replace(job.exports / path.name)


def max_tokens(model: Path) -> int:
    """Return the number of tokens after which the checkpoint cuts a text."""
    return int(json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"])


def _copy_tokenizer(job: Job) -> None:
    """Copy what a tokenizer is read from, with the checkpoint's own limit: that of its tokenizer may be larger."""
    for name in ("config.json", "tokenizer.json", "special_tokens_map.json"):
        if (job.model / name).exists():
            shutil.copy(job.model / name, job.exports / name)
    settings = json.loads((job.model / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["model_max_length"] = max_tokens(job.model)
    (job.exports / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _inputs(model: Path, texts: list[str]) -> dict[str, torch.Tensor]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    limit = max_tokens(model)
    return dict(tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt"))


def _to_onnx(job: Job, target: Path) -> None:
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(str(job.model), local_files_only=True, attn_implementation="eager").eval()

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.encoder(**dict(zip(names, inputs, strict=True))).last_hidden_state
            return hidden

    inputs = _inputs(job.model, ["a first text", "and a second, longer text"])
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


def _to_dynamic_int8(job: Job, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source = str(job.exports / "model.onnx")
    quantize_dynamic(source, str(target), per_channel=True, weight_type=QuantType.QInt8, reduce_range=True)


def _to_calibrated_int8(job: Job, target: Path) -> None:
    import nncf
    import openvino as ov

    texts = json.loads(job.texts.read_text(encoding="utf-8"))
    encoder = ov.convert_model(str(job.exports / "model.onnx"))
    names = {value.get_any_name() for value in encoder.inputs}

    def feed(text: str) -> dict[str, Any]:
        return {name: tensor.numpy() for name, tensor in _inputs(job.model, [text]).items() if name in names}

    quantized = nncf.quantize(
        encoder,
        nncf.Dataset(texts, feed),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(texts),
    )
    ov.save_model(quantized, str(target))


EXPORTS: dict[str, Callable[[Job, Path], None]] = {
    "model.onnx": _to_onnx,
    "model-int8.onnx": _to_dynamic_int8,
    "openvino-int8.xml": _to_calibrated_int8,
}


if __name__ == "__main__":
    main()

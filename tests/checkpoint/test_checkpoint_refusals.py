"""What a checkpoint may not ask for: everything in it is input from strangers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from checkpoint_folders import edit, edit_modules, write

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.jsonfile import MAX_JSON_BYTES
from cenote.errors import CheckpointError
from tiny import add_sentence_transformers_files


@pytest.mark.parametrize(
    "path", ["/etc", "../elsewhere", "1_Pooling/../../x", "C:\\x", "..\\x", "\\\\host\\x", "a\0b", 7, None]
)
def test_paths_in_modules_json_stay_inside(chain: Path, path: object) -> None:
    edit_modules(chain, lambda modules: modules[1].update(path=path))
    with pytest.raises(CheckpointError, match=r"outside of the model folder|not a path"):
        read_checkpoint(chain)


@pytest.mark.parametrize("name", ["/etc/passwd", "../model.safetensors", 3])
def test_paths_in_a_weight_index_stay_inside(bert: Path, name: object) -> None:
    (bert / "model.safetensors").unlink()
    write(bert / "model.safetensors.index.json", {"weight_map": {"a": name}})
    with pytest.raises(CheckpointError, match=r"outside of the model folder|not a path"):
        read_checkpoint(bert, pooling="cls")


def test_links_of_a_hub_cache_are_followed(bert: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(bert.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(os.path.join("..", "..", "blobs", str(number)))
    spec = read_checkpoint(snapshot, pooling="cls")
    assert spec.weight_files == (snapshot / "model.safetensors",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "must hold a JSON object, but holds a list"),
        ('"text"', "must hold a JSON object, but holds a string"),
        ("null", "holds null"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_json_that_is_not_an_object(bert: Path, content: str, message: str) -> None:
    (bert / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message) as raised:
        read_checkpoint(bert, pooling="cls")
    assert str(bert / "config.json") in str(raised.value)


def test_json_that_is_not_text(bert: Path) -> None:
    (bert / "config.json").write_bytes(b'{"model_type": "\xff"}')
    with pytest.raises(CheckpointError, match="not valid JSON"):
        read_checkpoint(bert, pooling="cls")


def test_json_that_is_huge(bert: Path) -> None:
    with (bert / "config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(CheckpointError, match="no configuration file is larger"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize("content", ["{}", '[{"idx": 0}]', "[3]", "[]", '[{"type": 3}]'])
def test_a_damaged_modules_json(chain: Path, content: str) -> None:
    (chain / "modules.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"modules\.json"):
        read_checkpoint(chain)


def test_a_module_folder_that_is_missing(chain: Path) -> None:
    edit_modules(chain, lambda modules: modules[2].update(path="2_Other"))
    with pytest.raises(CheckpointError, match="'2_Other', which is missing"):
        read_checkpoint(chain)


@pytest.mark.parametrize(
    ("quantization", "name"),
    [({"quant_method": "gptq"}, "gptq"), ({"quant_method": "awq"}, "awq"), ({"load_in_8bit": True}, "unknown")],
)
def test_quantised_weights_by_their_method(bert: Path, quantization: dict[str, object], name: str) -> None:
    edit(bert / "config.json", quantization_config=quantization)
    with pytest.raises(CheckpointError, match=rf"quantised \({name}\).*full-precision"):
        read_checkpoint(bert, pooling="cls")


def test_an_empty_quantization_config_is_none(bert: Path) -> None:
    edit(bert / "config.json", quantization_config=None)
    assert read_checkpoint(bert, pooling="cls").embed is not None


@pytest.mark.parametrize(("file", "name"), [("quantize_config.json", "GPTQ"), ("quant_config.json", "AWQ")])
def test_quantised_weights_by_their_file(bert: Path, file: str, name: str) -> None:
    write(bert / file, {})
    with pytest.raises(CheckpointError, match=rf"quantised \({name}\)"):
        read_checkpoint(bert, pooling="cls")


def test_an_adapter_alone_and_beside_weights(bert: Path, tmp_path: Path) -> None:
    write(bert / "adapter_config.json", {"peft_type": "LORA"})
    alone = tmp_path / "alone"
    write(alone / "adapter_config.json", {"peft_type": "LORA"})
    for folder in (bert, alone):
        with pytest.raises(CheckpointError, match=r"PEFT adapter.*merge"):
            read_checkpoint(folder, pooling="cls")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model-q8_0.gguf", "GGUF"),
        ("model.onnx", "ONNX"),
        ("onnx/model.onnx", "ONNX"),
        ("tf_model.h5", "TensorFlow"),
        ("flax_model.msgpack", "Flax"),
        ("openvino/openvino_model.xml", "OpenVINO"),
    ],
)
def test_weights_of_another_format_only(bert: Path, file: str, name: str) -> None:
    (bert / "model.safetensors").unlink()
    path = bert / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=rf"as {name} only .*model\.safetensors"):
        read_checkpoint(bert, pooling="cls")
    (bert / "config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"as {name} only"):
        read_checkpoint(bert, pooling="cls")


def test_a_folder_without_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no weights"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is not a folder"):
        read_checkpoint(tmp_path / "nothing")


def test_a_folder_without_config_or_tokenizer(bert: Path) -> None:
    (bert / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        read_checkpoint(bert, pooling="cls")
    (bert / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize("model_type", ["clip", "whisper", "jamba", None, ["bert"]])
def test_families_that_are_not_run(bert: Path, model_type: object) -> None:
    edit(bert / "config.json", model_type=model_type)
    with pytest.raises(CheckpointError, match="which Cenote does not run; it runs: bert"):
        read_checkpoint(bert, pooling="cls")


def test_an_encoder_saved_as_a_decoder(bert: Path) -> None:
    edit(bert / "config.json", is_decoder=True)
    with pytest.raises(CheckpointError, match="is_decoder=true"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size"])
def test_sizes_that_are_no_sizes(bert: Path, key: str) -> None:
    edit(bert / "config.json", **{key: "many"})
    with pytest.raises(CheckpointError, match=f"must give {key} as a positive number, not 'many'"):
        read_checkpoint(bert, pooling="cls")


def test_matryoshka_sizes_that_are_no_sizes(bert: Path) -> None:
    edit(bert / "config.json", matryoshka_dimensions=[16, 4096])
    with pytest.raises(CheckpointError, match="matryoshka_dimensions"):
        read_checkpoint(bert, pooling="cls")


def test_a_chain_in_a_classifier_of_sentence_transformers(bert: Path) -> None:
    add_sentence_transformers_files(bert)
    edit(bert / "config_sentence_transformers.json", model_type="CrossEncoder")
    with pytest.raises(CheckpointError, match="is a CrossEncoder of sentence-transformers with a Pooling module"):
        read_checkpoint(bert)


def test_nothing_is_imported_by_name(chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the checkpoint's own, even one that could be imported, is only compared by its name."""
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    edit_modules(chain, lambda modules: modules[1].update(type="evil.Pooling"))
    with pytest.raises(CheckpointError, match=r"evil\.Pooling"):
        read_checkpoint(chain)


def test_messages_are_one_line_each(chain: Path) -> None:
    edit(chain / "config.json", model_type="unknown")
    with pytest.raises(CheckpointError) as raised:
        read_checkpoint(chain)
    assert "\n" not in str(raised.value)
    assert json.dumps(str(raised.value))

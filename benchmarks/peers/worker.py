"""One contestant in a process and an environment of its own: embeds lists of texts when it is told to.

Usage: worker.py CONTESTANT MODEL_FOLDER EXPORTS_FOLDER THREADS. A line on its input is the path of a JSON list of
texts; the answer is a line with the seconds, and the vectors beside the texts as `.npy`. It imports nothing of this
repository, so that any peer's interpreter can run it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

BATCH_SIZE = 32
Array = npt.NDArray[np.float32]
Embed = Callable[[list[str]], Any]


class Setup(NamedTuple):
    """What every contestant is told: the model's folder, that of its exports, and the compute threads."""

    model: Path
    exports: Path
    threads: int


def cenote(setup: Setup, dtype: str = "float32") -> Embed:
    from cenote import Engine

    return Engine(str(setup.model), device="cpu", dtype=dtype, threads=setup.threads).embed


def sentence_transformers(setup: Setup) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(setup.threads)
    encoder = SentenceTransformer(str(setup.model), device="cpu", local_files_only=True)
    return lambda texts: encoder.encode(texts, batch_size=BATCH_SIZE)


def infinity(setup: Setup) -> Embed:
    import torch
    from infinity_emb import AsyncEmbeddingEngine, EngineArgs

    torch.set_num_threads(setup.threads)
    arguments = EngineArgs(
        model_name_or_path=str(setup.model),
        engine="torch",
        device="cpu",
        dtype="float32",
        bettertransformer=False,
        compile=False,
        model_warmup=False,
        batch_size=BATCH_SIZE,
    )
    engine = AsyncEmbeddingEngine.from_args(arguments)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(engine.astart())
    return lambda texts: loop.run_until_complete(engine.embed(sentences=texts))[0]


def fastembed(setup: Setup) -> Embed:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = json.loads((setup.model / "config.json").read_text())["hidden_size"]
    TextEmbedding.add_custom_model(
        model="local/exported",
        pooling={"cls": PoolingType.CLS, "mean": PoolingType.MEAN}[_pooling(setup.model)],
        normalization=True,
        sources=ModelSource(hf="local/exported"),
        dim=width,
        model_file="model.onnx",
    )
    encoder = TextEmbedding("local/exported", specific_model_path=str(setup.exports), threads=setup.threads)
    return lambda texts: np.stack(list(encoder.embed(texts, batch_size=BATCH_SIZE)))


def onnx(setup: Setup, file: str = "model.onnx") -> Embed:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    session = onnxruntime.InferenceSession(str(setup.exports / file), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return _padded(setup.model, lambda batch: session.run(None, {name: batch[name] for name in names})[0])


def openvino(setup: Setup) -> Embed:
    import openvino as ov

    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": setup.threads})
    compiled = core.compile_model(str(setup.exports / "openvino-int8.xml"), "CPU")
    names = [value.get_any_name() for value in compiled.inputs]
    return _padded(setup.model, lambda batch: compiled({name: batch[name] for name in names})[0])


def _padded(model: Path, run: Callable[[dict[str, npt.NDArray[np.int64]]], Array]) -> Embed:
    """Return the loop that people write around an exported encoder: sorted batches, pooling, L2."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(_max_tokens(model))
    tokenizer.enable_padding(pad_id=json.loads((model / "config.json").read_text())["pad_token_id"])
    pooling = _pooling(model)

    def embed(texts: list[str]) -> Array:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        rows: list[Array] = []
        for start in range(0, len(texts), BATCH_SIZE):
            encoded = tokenizer.encode_batch([texts[i] for i in order[start : start + BATCH_SIZE]])
            mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
            types = np.array([each.type_ids for each in encoded], dtype=np.int64)
            ids = np.array([each.ids for each in encoded], dtype=np.int64)
            hidden = run({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})
            is_mean = pooling == "mean"
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True) if is_mean else hidden[:, 0]
            rows.append(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))
        vectors = np.empty((len(texts), rows[0].shape[1]), dtype=np.float32)
        vectors[order] = np.concatenate(rows)
        return vectors

    return embed


def _max_tokens(model: Path) -> int:
    """Return the number of tokens after which the checkpoint cuts a text."""
    return int(json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"])


def _pooling(model: Path) -> str:
    """Return `cls` or `mean`, as the checkpoint says."""
    settings = json.loads((model / "1_Pooling" / "config.json").read_text())
    modes = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    (pooling,) = (name for key, name in modes.items() if settings.get(key))
    return pooling


def vllm(setup: Setup) -> Embed:
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{setup.threads - 1}"
    from vllm import LLM

    llm = LLM(
        str(setup.model),
        runner="pooling",
        dtype="float32",
        enforce_eager=True,
        max_num_batched_tokens=max(4096, _max_tokens(setup.model)),  # a text must fit
        max_num_seqs=256,
    )
    cut = {"truncate_prompt_tokens": -1}  # at the model's own limit; else a longer text is refused
    return lambda texts: [
        each.outputs.embedding for each in llm.embed(texts, use_tqdm=False, tokenization_kwargs=dict(cut))
    ]


CONTESTANTS: dict[str, Callable[[Setup], Embed]] = {
    "cenote": cenote,
    "cenote int8": lambda setup: cenote(setup, "int8"),
    "sentence-transformers": sentence_transformers,
    "infinity": infinity,
    "fastembed": fastembed,
    "onnx runtime": onnx,
    "onnx runtime int8": lambda setup: onnx(setup, "model-int8.onnx"),
    "openvino int8": openvino,
    "vllm": vllm,
}


def main() -> None:
    setup = Setup(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a peer prints must not look like an answer
    embed = CONTESTANTS[sys.argv[1]](setup)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        path = Path(line.strip())
        texts = json.loads(path.read_text(encoding="utf-8"))
        start = time.perf_counter()
        vectors = embed(texts)
        seconds = time.perf_counter() - start
        np.save(path.with_suffix(".npy"), np.asarray(vectors, dtype=np.float32))
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)
    os._exit(0)  # some peers keep threads that never end


if __name__ == "__main__":
    main()

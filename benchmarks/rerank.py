"""One query with a hundred documents: Cenote against sentence-transformers' `CrossEncoder`, and what prefixes save.

The cross-encoder has MiniLM's shape and weights with a seeded head, the same folder and threads for both; the rounds
are interleaved. The language model is a small seeded one with the prompt of Qwen3-Reranker: only its tokens are
counted, those that the engine ran against all documents with the whole prompt each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from cenote import Engine
from cenote.bench.corpora import make_texts
from report import DEFAULT_MODEL, environment, write_result

ST_BATCH_SIZE = 32
LARGEST_DIFFERENCE = 1e-4


def write_cross_encoder(model: Path, folder: Path) -> Path:
    """Put a seeded head of one label on the weights of `model`."""
    torch.manual_seed(0)
    classifier = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1)
    classifier.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    return folder


def write_language_model(model: Path, folder: Path) -> Path:
    """Write a small seeded Qwen3 with the tokenizer of `model`; its name says which prompt it reads."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048, "vocab_size": len(tokenizer)}
    config = AutoConfig.for_model("qwen3", **sizes, **heads, bos_token_id=None, eos_token_id=0, pad_token_id=0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.model_max_length = 2048
    tokenizer.save_pretrained(folder)
    return folder


def compare(folder: Path, query: str, documents: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of interleaved rounds, the ratio in speed and the largest difference of the scores."""
    peer = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    pairs = [(query, document) for document in documents]
    with Engine(folder, device="cpu", dtype="float32", threads=options.threads) as engine:
        ways: dict[str, Callable[[], Any]] = {
            "cenote": lambda: engine.score(query, documents),
            "sentence-transformers": lambda: peer.predict(pairs, batch_size=ST_BATCH_SIZE),
        }
        num_tokens = sum(engine.score(query, documents).num_tokens)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        scores: dict[str, Any] = {name: way() for name, way in ways.items()}
        for number in range(options.rounds):
            for name in ways if number % 2 == 0 else reversed(ways):
                started = time.perf_counter()
                scores[name] = ways[name]()
                seconds[name].append(time.perf_counter() - started)
    ours, theirs = (statistics.median(seconds[name]) for name in ways)
    return {
        "documents": len(documents),
        "tokens": num_tokens,
        "ratio": round(theirs / ours, 3),
        "ratio_of_each_round": [round(b / a, 3) for a, b in zip(*seconds.values(), strict=True)],
        "largest_difference": float(np.abs(np.subtract(*scores.values())).max()),
        **{name: {"median_seconds": round(statistics.median(values), 4)} for name, values in seconds.items()},
    }


def count_tokens(folder: Path, query: str, documents: list[str]) -> dict[str, Any]:
    """Return how many tokens ran for one query, and how many there are in all prompts together."""
    with Engine(folder, device="cpu", dtype="float32") as engine:
        runner = engine._core.lane.runner
        before = runner.num_tokens
        in_prompts = sum(engine.score(query, documents).num_tokens)
        ran = runner.num_tokens - before
    return {"tokens_in_prompts": in_prompts, "tokens_run": ran, "share": round(ran / in_prompts, 3)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="folder of a BERT model")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    result: dict[str, Any] = {"benchmark": "rerank", **environment(), "model": options.model.name}
    result |= {"threads": options.threads, "rounds": options.rounds, "batch_size_of_peer": ST_BATCH_SIZE}
    torch.set_num_threads(options.threads)
    query, documents = make_texts("query", 1)[0], make_texts("passage", options.documents)
    with tempfile.TemporaryDirectory() as folder:
        cross_encoder = write_cross_encoder(options.model, Path(folder) / "cross-encoder")
        language_model = write_language_model(options.model, Path(folder) / "Qwen3-Reranker-seeded")
        result["cross_encoder"] = compare(cross_encoder, query, documents, options)
        result["shared_prefix"] = count_tokens(language_model, query, documents)
    speed, shared = result["cross_encoder"], result["shared_prefix"]
    print(f"cross-encoder   ratio {speed['ratio']:.2f}  largest difference {speed['largest_difference']:.1e}")
    ran, in_prompts = shared["tokens_run"], shared["tokens_in_prompts"]
    print(f"shared prefix   {ran:,} of {in_prompts:,} tokens run ({shared['share']:.0%})")
    print(f"written to {write_result('rerank', result)}")
    if speed["largest_difference"] > LARGEST_DIFFERENCE:
        print("the scores differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

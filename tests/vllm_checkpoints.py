"""Seeded checkpoints that Cenote and vLLM load: heads of 32 values, the smallest that vLLM's CPU attention takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reranker_folders import edit, tiny_reranker
from tiny import HIDDEN_SIZE, TinyDense, add_sentence_transformers_files, tiny_checkpoint
from tiny_tokenizers import WORDS

Builder = Callable[[Path], Path]
Tensors = Mapping[str, torch.Tensor]

ENCODER: dict[str, Any] = {"num_attention_heads": 2}
DECODER: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
STEP_TAG_ID = 50
JINA_VOCAB_SIZE = 151936
JINA_MARKS = {"<|embed_token|>": 151670, "<|rerank_token|>": 151671}


def plain(family: str, **config: Any) -> Builder:
    """A checkpoint as transformers saves it."""
    return lambda folder: tiny_checkpoint(family, folder, **config)


def with_modules(family: str, config: Mapping[str, Any], **modules: Any) -> Builder:
    """A checkpoint as sentence-transformers saves it; `modules` go to `add_sentence_transformers_files`."""

    def build(folder: Path) -> Path:
        tiny_checkpoint(family, folder, **config)
        return add_sentence_transformers_files(folder, max_seq_length=64, **modules)

    return build


def dense_module(activation: str) -> list[TinyDense]:
    return [TinyDense(HIDDEN_SIZE, 24, activation)]


def reward_model(architecture: str, num_labels: int) -> Builder:
    """Qwen2 with the two-layer `score` of its reward models, which transformers has no class for."""

    def build(folder: Path) -> Path:
        tiny_checkpoint("qwen2", folder, **DECODER)
        score = seeded({"0.weight": (HIDDEN_SIZE, HIDDEN_SIZE), "0.bias": (HIDDEN_SIZE,)}, seed=4)
        score |= seeded({"2.weight": (num_labels, HIDDEN_SIZE), "2.bias": (num_labels,)}, seed=5)
        rename_weights(folder, "model.", {f"score.{name}": tensor for name, tensor in score.items()})
        edit(folder / "config.json", architectures=[architecture], num_labels=num_labels)
        _name_token(folder / "tokenizer.json", STEP_TAG_ID, "<extra_0>")
        return folder

    return build


def _name_token(path: Path, token_id: int, piece: str) -> None:
    content = json.loads(path.read_text())
    content["model"]["vocab"][token_id][0] = piece
    path.write_text(json.dumps(content))


def bge_m3(folder: Path) -> Path:
    """XLM-R with the two heads of BGE-M3 in files of their own."""
    tiny_checkpoint("xlm-roberta", folder, **ENCODER)
    torch.save(seeded({"weight": (1, HIDDEN_SIZE), "bias": (1,)}, seed=8), folder / "sparse_linear.pt")
    square = {"weight": (HIDDEN_SIZE, HIDDEN_SIZE), "bias": (HIDDEN_SIZE,)}
    torch.save(seeded(square, seed=2), folder / "colbert_linear.pt")
    return folder


def splade(*, decoder: bool, skip_marks: bool = False) -> Builder:
    """BERT with its masked-language head; `decoder` writes the tied decoder out, which transformers leaves away."""

    def build(folder: Path) -> Path:
        tiny_checkpoint("bert", folder, head="masked_lm", **ENCODER)
        if decoder:
            write_decoder_out(folder)
        if skip_marks:
            edit(folder / "config.json", cls_token_id=2, sep_token_id=3)
        return folder

    return build


def write_decoder_out(folder: Path) -> None:
    """Add the tied decoder of BERT's masked-language head to the weights under its own names."""
    tensors = load_file(folder / "model.safetensors")
    tied = {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
    }
    save_file(tensors | tied, folder / "model.safetensors", metadata={"format": "pt"})


def stanford_colbert(folder: Path) -> Path:
    """BERT under `bert.` and a projection to 24 values as `linear.weight`."""
    tiny_checkpoint("bert", folder, **ENCODER)
    rename_weights(folder, "bert.", seeded({"linear.weight": (24, HIDDEN_SIZE)}, seed=3))
    edit(folder / "config.json", architectures=["HF_ColBERT"])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["[unused0]", "[unused1]"])
    tokenizer.save_pretrained(folder)
    return folder


def with_config(build: Builder, **values: Any) -> Builder:
    """Another checkpoint with `values` in its config.json."""

    def edited(folder: Path) -> Path:
        edit(build(folder) / "config.json", **values)
        return folder

    return edited


def llm_reranker(model_type: str, *words: str) -> Builder:
    """A causal language model whose tokenizer has the answers as tokens."""
    return lambda folder: tiny_reranker(folder, model_type, words=words, **DECODER)


def listwise(folder: Path) -> Path:
    """Qwen3 with the projector and the two marks of jina-reranker-v3, at their own places in the vocabulary: 39 MB."""
    sizes = DECODER | {"vocab_size": JINA_VOCAB_SIZE, "max_position_embeddings": 1024}
    tiny_checkpoint("qwen3", folder, **sizes)
    projector = {"projector.0.weight": (32, HIDDEN_SIZE), "projector.2.weight": (512, 32)}
    rename_weights(folder, "model.", seeded(projector, seed=5))
    edit(folder / "config.json", architectures=["JinaForRanking"])
    _save_listwise_tokenizer(folder)
    return folder


def _save_listwise_tokenizer(folder: Path) -> None:
    """Words in, with the prompt's own punctuation; what it does not know is one token."""
    words = ["passage", "query", "id", *WORDS, *"<>/=,."]
    vocab = {"<unk>": 0} | {word: i for i, word in enumerate(words, 1)} | {str(n): 200 + n for n in range(10)}
    vocab |= {"<|im_start|>": 151644, "<|im_end|>": 151645, "<think>": 151667, "</think>": 151668, **JINA_MARKS}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=1024,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>", "<think>", "</think>", *JINA_MARKS],
    )
    fast.save_pretrained(folder)


def seeded(shapes: Mapping[str, tuple[int, ...]], *, seed: int) -> dict[str, torch.Tensor]:
    """Return random tensors of these shapes, 0.3 wide."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}


def rename_weights(folder: Path, prefix: str, more: Tensors) -> None:
    """Put `prefix` before the name of every weight and add `more`."""
    tensors = {f"{prefix}{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors | dict(more), folder / "model.safetensors", metadata={"format": "pt"})


def fingerprint(folder: Path) -> list[float]:
    """Return one number for each weight of a checkpoint, in the order of their names.

    A checksum of the bytes would do on one machine; torch's generator may differ in the last bit on another one.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        tensors |= {f"{path.relative_to(folder)}/{name}": tensor for name, tensor in load_file(path).items()}
    for path in sorted(folder.glob("*_linear.pt")):
        tensors |= {f"{path.name}/{name}": tensor for name, tensor in torch.load(path, weights_only=True).items()}
    flat = [tensor.double().flatten() for _, tensor in sorted(tensors.items())]
    return [float(t @ torch.cos(torch.arange(len(t), dtype=t.dtype))) for t in flat]


def read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())  # type: ignore[no-any-return]

"""A checkpoint of BGE-M3's shape with random weights: what it computes costs what the real one costs.

The vocabulary is smaller than the real one, since rows of the embedding table that are not read cost nothing; it has
the words of the made-up texts, so that these differ. Its files say what older readers ask for, as the real one's do.
Usage: bge_m3_shape.py FOLDER.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from cenote.bench.corpora import make_texts

VOCAB_SIZE = 32_000
MAX_TOKENS = 8_192
VOCABULARY_TEXTS = 2_000


def write_checkpoint(folder: Path, num_layers: int = 24, hidden_size: int = 1_024) -> Path:
    """Write the checkpoint into `folder` unless it is there, and return `folder`."""
    if (folder / "config_sentence_transformers.json").exists():
        return folder
    config = XLMRobertaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=MAX_TOKENS + 2,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        position_embedding_type="absolute",
    )
    torch.manual_seed(0)
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    _write_heads(folder, hidden_size)
    _write_tokenizer(folder)
    _write_sentence_transformers_files(folder)
    return folder


def _write_heads(folder: Path, hidden_size: int) -> None:
    for name, width in (("sparse_linear", 1), ("colbert_linear", hidden_size)):
        torch.save(torch.nn.Linear(hidden_size, width).state_dict(), folder / f"{name}.pt")


def _write_tokenizer(folder: Path) -> None:
    split = pre_tokenizers.Whitespace()
    texts = make_texts("mixed", VOCABULARY_TEXTS)
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    names = ["<s>", "<pad>", "</s>", "<unk>", *words]
    names += [f"w{i}" for i in range(len(names), VOCAB_SIZE)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=MAX_TOKENS,
    ).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # transformers 4 does not know the name that 5 writes
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


def _write_sentence_transformers_files(folder: Path) -> None:
    prefix = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{prefix}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{prefix}.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{prefix}.Normalize"},
    ]
    hidden_size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": hidden_size, "pooling_mode_cls_token": True}
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {**pooling, "pooling_mode_mean_tokens": False}),
        ("sentence_bert_config.json", {"max_seq_length": MAX_TOKENS, "do_lower_case": False}),
        ("config_sentence_transformers.json", {"__version__": {}}),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    print(write_checkpoint(Path(sys.argv[1])))

"""Tokenizer folders of the kinds that checkpoints carry, small and trained on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertTokenizer,
    DebertaV2Tokenizer,
    GemmaTokenizer,
    LlamaTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)

from cenote.checkpoint.spec import TextSpec
from cenote.text.encoder import TextEncoder

CORPUS = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Cenotes are natural pits that form where limestone collapses and exposes groundwater.",
    "Die Höhlen sind tief; das Wasser ist klar und kühl.",
    "Les cénotes étaient sacrés pour les Mayas, l'eau y était pure.",
    "Пещеры глубоки, вода чиста. 1234567890 + 3.14 = ?",
    "洞窟の水は澄んでいる。東京と京都。",
    "def main(args):\n    return [x ** 2 for x in range(10)]\n\n\tprint('ok')",
    "hello world HELLO World the a of and to in is it",
] * 3

SAMPLES = [
    "Hello world",
    "hello WORLD, doesn't it?",
    "",
    " ",
    "\n\t ",
    "  leading and trailing  ",
    "a\x00b",
    "Höhlen étaient глубоки 洞窟の水。",
    "😀👩‍👩‍👧 é (combining) ﬁ ﷺ",
    "[CLS] x [SEP] <s> y </s> <mask> <|endoftext|>",
    "x" * 300,
    "line one\r\nline two\n\n\nline three    end",
    "1234567 3.14 a_b-c/d",
]

FolderMaker = Callable[[Path], Path]


def bert_vocab_only(folder: Path) -> Path:
    """The layout of the oldest BERT checkpoints: a vocabulary, no `tokenizer.json`, hardly a config."""
    vocab = _word_piece().get_vocab()
    folder.mkdir(parents=True, exist_ok=True)
    lines = sorted(vocab, key=vocab.__getitem__)
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 64})
    return _with_config(folder, "bert")


def bert_class(folder: Path, *, do_lower_case: bool = True) -> Path:
    """Saved by `BertTokenizer`."""
    BertTokenizer(vocab=_word_piece().get_vocab(), do_lower_case=do_lower_case).save_pretrained(folder)
    return _with_config(folder, "bert")


def bert_contradicting(folder: Path) -> Path:
    """`tokenizer.json` lower-cases, `tokenizer_config.json` says otherwise: the class has the last word."""
    bert_class(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    write_json(folder / "tokenizer_config.json", {**config, "do_lower_case": False})
    return folder


def mpnet(folder: Path) -> Path:
    """WordPiece with RoBERTa's special tokens and `<mask>` that takes the space before it."""
    vocab = _word_piece(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]).get_vocab()
    MPNetTokenizer(vocab=vocab).save_pretrained(folder)
    return _with_config(folder, "mpnet")


def roberta(folder: Path) -> Path:
    """Byte-level BPE, two separators between the texts of a pair."""
    vocab, merges = _byte_level_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    RobertaTokenizer(vocab=vocab, merges=merges).save_pretrained(folder)
    return _with_config(folder, "roberta")


def xlm_roberta(folder: Path) -> Path:
    """Unigram over words with the mark."""
    XLMRobertaTokenizer(vocab=_unigram(["<s>", "<pad>", "</s>", "<unk>"])).save_pretrained(folder)
    return _with_config(folder, "xlm-roberta")


def t5(folder: Path) -> Path:
    """Unigram, nothing but `</s>` at the end."""
    T5Tokenizer(vocab=_unigram(["<pad>", "</s>", "<unk>"]), extra_ids=3).save_pretrained(folder)
    return _with_config(folder, "t5")


def deberta_v2(folder: Path) -> Path:
    """Unigram over words, a normaliser that replaces and strips."""
    vocab = _unigram(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], unk="[UNK]")
    DebertaV2Tokenizer(vocab=vocab).save_pretrained(folder)
    return _with_config(folder, "deberta-v2")


def qwen(folder: Path) -> Path:
    """BL-07: the post-processor appends `<|endoftext|>`, the config's `eos_token` is `<|im_end|>`."""
    qwen_without_eos(folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = "<|endoftext|>"
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, backend.token_to_id(eos))]
    )
    backend.save(str(folder / "tokenizer.json"))
    return folder


def qwen_without_eos(folder: Path) -> Path:
    """BL-07's other fixture: a decoder whose tokenizer adds nothing."""
    vocab, merges = _byte_level_bpe(["<|endoftext|>", "<|im_end|>", "<|im_start|>"])
    Qwen2Tokenizer(vocab=vocab, merges=merges, eos_token="<|im_end|>").save_pretrained(folder)
    return _with_config(folder, "qwen3")


def llama3(folder: Path) -> Path:
    """Declared as `PreTrainedTokenizerFast`: a split pattern, byte-level BPE, BOS in front."""
    vocab, merges = _byte_level_bpe(["<|begin_of_text|>", "<|end_of_text|>"])
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bos = "<|begin_of_text|>"
    backend.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, vocab[bos])]
    )
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token="<|end_of_text|>").save_pretrained(
        folder
    )
    return _with_config(folder, "llama")


def gemma(folder: Path) -> Path:
    """BPE over the whole text, spaces as marks, `<bos>` and `<eos>` around it."""
    vocab, merges = _marked_bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    tokenizer = GemmaTokenizer(vocab=vocab, merges=merges, add_bos_token=True, add_eos_token=True)
    tokenizer.save_pretrained(folder)
    return _with_config(folder, "gemma3_text")


def llama2(folder: Path) -> Path:
    """`LlamaTokenizer`: BPE over the whole text, a mark put before it."""
    vocab, merges = _marked_bpe(["<unk>", "<s>", "</s>"])
    LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True).save_pretrained(folder)
    return _with_config(folder, "llama")


def bert_with_baked_limits(folder: Path) -> Path:
    """Truncation and padding stored in `tokenizer.json`, as all-MiniLM-L6-v2 has them."""
    bert_class(folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_truncation(max_length=8)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))
    return folder


def bert_with_added_tokens(folder: Path) -> Path:
    """Tokens added by hand: with a space inside, lower-case only, taking the spaces behind them."""
    tokenizer = BertTokenizer(vocab=_word_piece().get_vocab())
    tokenizer.add_tokens(
        [
            AddedToken("xoxoxoxo world", normalized=True),
            AddedToken("fox", normalized=False, single_word=True),
            AddedToken("<tag>", rstrip=True, special=True),
        ]
    )
    tokenizer.save_pretrained(folder)
    return _with_config(folder, "bert")


FOLDERS: dict[str, FolderMaker] = {
    maker.__name__: maker
    for maker in (
        bert_vocab_only,
        bert_class,
        bert_contradicting,
        bert_with_baked_limits,
        bert_with_added_tokens,
        mpnet,
        roberta,
        xlm_roberta,
        t5,
        deberta_v2,
        qwen,
        qwen_without_eos,
        llama3,
        gemma,
        llama2,
    )
}


def encoder_for(folder: Path, *, max_length: int = 64, **text: Any) -> TextEncoder:
    """A `TextEncoder` with what `checkpoint/` would read from such a folder."""
    spec = TextSpec(
        **{"tokenizer_folder": folder, "max_length": max_length, "max_length_reason": "test", "uses_token_types": True}
        | text
    )
    return TextEncoder(spec, vocab_size=2000, max_length=max_length)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _with_config(folder: Path, model_type: str) -> Path:
    write_json(folder / "config.json", {"model_type": model_type, "transformers_version": "5.24.0"})
    return folder


def _word_piece(specials: list[str] | None = None) -> Tokenizer:
    specials = specials or ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _byte_level_bpe(specials: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained_bpe(tokenizer, specials, initial_alphabet=sorted(alphabet))


def _marked_bpe(specials: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return _trained_bpe(tokenizer, [*specials, *(f"<0x{byte:02X}>" for byte in range(256))], initial_alphabet=["▁"])


def _trained_bpe(
    tokenizer: Tokenizer, specials: list[str], initial_alphabet: list[str]
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=specials, initial_alphabet=initial_alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _unigram(specials: list[str], unk: str = "<unk>") -> list[tuple[str, float]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=specials, unk_token=unk, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]

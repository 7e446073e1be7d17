"""Small real fast tokenizers, one for each style that encoders and decoders use. Vocabulary: `VOCAB_SIZE` entries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 200
TokenizerStyle = Literal["bert", "roberta", "t5", "decoder"]

CONFIG_EOS_ID = 198
"""`eos_token_id` of decoder configs; not the token that their post-processor appends."""
APPENDED_EOS_ID = 199
WORDS = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "it",
    "on",
    "for",
    "with",
    "as",
    "was",
    "by",
    "at",
    "from",
    "that",
    "this",
    "he",
    "she",
    "they",
    "we",
    "you",
    "i",
    "not",
    "be",
    "are",
    "or",
    "an",
    "but",
    "yes",
    "no",
    "cat",
    "dog",
    "bird",
    "fish",
    "tree",
    "river",
    "water",
    "stone",
    "cave",
    "light",
    "dark",
    "day",
    "night",
    "sun",
    "moon",
    "star",
    "sky",
    "rain",
    "snow",
    "wind",
    "fire",
    "ice",
    "red",
    "blue",
    "green",
    "black",
    "white",
    "big",
    "small",
    "old",
    "new",
    "good",
    "bad",
    "fast",
    "slow",
    "hot",
    "cold",
    "north",
    "south",
    "east",
    "west",
    "city",
    "house",
    "road",
    "sea",
    "paris",
    "london",
    "capital",
    "france",
    "science",
    "music",
    "art",
    "war",
    "peace",
    "king",
    "queen",
    "man",
    "woman",
    "child",
    "what",
    "who",
    "where",
    "when",
    "why",
    "how",
]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PUNCTUATION = ".,?!:;'-"


@dataclass(frozen=True)
class _Specials:
    ids: dict[str, int]
    """special token -> id"""
    named: dict[str, str]
    """constructor arguments of the tokenizer"""


def tiny_tokenizer(
    style: TokenizerStyle, *, max_length: int, pad_token_id: int | None = None
) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a style. `pad_token_id` moves the padding token (RoBERTa's positions start behind it)."""
    specials = _specials(style, pad_token_id)
    tokenizer = _word_piece(specials) if style == "bert" else _unigram(specials)
    tokenizer.post_processor = _post_processor(style, specials.ids)
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if style == "bert" else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=max_length, model_input_names=inputs, **specials.named
    )


def save_tiny_tokenizer(
    folder: Path, style: TokenizerStyle, *, max_length: int, pad_token_id: int | None = None
) -> None:
    """Write `tokenizer.json` and its config into `folder`."""
    tiny_tokenizer(style, max_length=max_length, pad_token_id=pad_token_id).save_pretrained(folder)


def _specials(style: TokenizerStyle, pad_token_id: int | None) -> _Specials:
    if style == "bert":
        named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        named["mask_token"] = "[MASK]"
        ids = {token: i for i, token in enumerate(named.values())} | {"[unused0]": 5, "[unused1]": 6}
    elif style == "roberta":
        named = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        named["mask_token"] = "<mask>"
        ids = {token: i for i, token in enumerate(named.values())}
        named |= {"cls_token": "<s>", "sep_token": "</s>"}
    elif style == "t5":
        named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        ids = {token: i for i, token in enumerate(named.values())}
    else:
        named = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
        ids = {"<unk>": 0, "<|step|>": 196, "<|im_start|>": 197}
        ids |= {"<|im_end|>": CONFIG_EOS_ID, "<|endoftext|>": APPENDED_EOS_ID}
    if pad_token_id is not None:
        ids[named["pad_token"]] = pad_token_id
    return _Specials(ids, named)


def _fill(specials: _Specials, pieces: list[str]) -> dict[str, int]:
    """Put the specials at their ids and the pieces in between, up to `VOCAB_SIZE`."""
    taken = set(specials.ids.values())
    free = [i for i in range(VOCAB_SIZE) if i not in taken]
    return specials.ids | dict(zip(pieces, free, strict=False))


def _word_piece(specials: _Specials) -> Tokenizer:
    pieces = [*_LETTERS, *("##" + letter for letter in _LETTERS), *_PUNCTUATION, *WORDS]
    vocab = _fill(specials, [*pieces, *(f"[unused{i}]" for i in range(2, VOCAB_SIZE))])
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _unigram(specials: _Specials) -> Tokenizer:
    """Pieces with the word boundary mark; words score better than their letters."""
    pieces = ["▁", *_LETTERS, *_PUNCTUATION, *("▁" + word for word in WORDS if len(word) > 1)]
    vocab = _fill(specials, [*pieces, *(f"<unused{i}>" for i in range(VOCAB_SIZE))])
    ranked = sorted(vocab, key=vocab.__getitem__)
    scores = [(piece, 0.0 if piece in specials.ids else -8.0 if len(piece) == 1 else -5.0) for piece in ranked]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=specials.ids["<unk>"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _post_processor(style: TokenizerStyle, ids: dict[str, int]) -> processors.TemplateProcessing:
    single, pair = {
        "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        "t5": ("$A </s>", "$A </s> $B </s>"),
        "decoder": ("$A <|endoftext|>", "$A $B <|endoftext|>"),
    }[style]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))

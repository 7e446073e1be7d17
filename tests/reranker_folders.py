"""Tiny rerankers made of language models, with the tokens and the templates that the published ones have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tiny import HIDDEN_SIZE, tiny_checkpoint
from tiny_tokenizers import VOCAB_SIZE

PAIR_TEMPLATE = (
    "{%- set ns = namespace(task='Find what answers the query.') -%}"
    "{%- for m in messages if m.role == 'system' -%}{%- set ns.task = m.content -%}{%- endfor -%}"
    "<|im_start|>judge\n{{ ns.task }}<|im_end|>\n<|im_start|>user\n"
    "query: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "document: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
ATTACHED_TAIL_TEMPLATE = PAIR_TEMPLATE.replace(
    "first }}<|im_end|>\n<|im_start|>assistant", "first }}\nis it relevant?\n"
)
"""No control token ends the document."""
START_ID = 197


CARDS = {
    "qwen3-reranker": "system\\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be \\"yes\\" or \\"no\\".<|im_end|>',
    "mxbai-rerank-v2": "from mxbai_rerank import MxbaiRerankV2",
    "bge-reranker-v2-gemma": "Given a query A and a passage B, determine whether the passage contains an answer to the "
    "query by providing a prediction of either 'Yes' or 'No'.",
}
"""The line of each published model card that only it has."""


def add_card(folder: Path, family: str) -> Path:
    """Write the model card of a published family and return the folder."""
    lines = ["---", "pipeline_tag: text-ranking", "---", "# A reranker", "```python", CARDS[family], "```"]
    (folder / "README.md").write_text("\n".join(lines))
    return folder


def convert_head(
    original: Path, converted: Path, yes: str = "yes", no: str | None = "no", *, keep: bool = False
) -> Path:
    """Make the head of `converted` the row of `yes` less that of `no`, as the published conversions do.

    `keep` stores the vocabulary head as well, as a model has it whose head is tied to the embedding.
    """
    weights = load_file(original / "model.safetensors")
    tokens = {piece: i for i, (piece, _) in enumerate(_pieces(original))}
    head = weights["lm_head.weight"] if keep else weights.pop("lm_head.weight")
    score = head[tokens[yes]] if no is None else head[tokens[yes]] - head[tokens[no]]
    save_file({**weights, "score.weight": score[None].clone()}, converted / "model.safetensors", {"format": "pt"})
    return converted


def _pieces(folder: Path) -> list[tuple[str, float]]:
    return json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]  # type: ignore[no-any-return]


def tiny_reranker(
    folder: Path,
    model_type: str = "qwen3",
    *,
    head: str = "causal_lm",
    words: Sequence[str] = ("yes", "no"),
    limit: int = 256,
    template: str | None = None,
    **config: Any,
) -> Path:
    """Write a seeded checkpoint whose vocabulary has `words` and some digits as tokens without a mark before them."""
    tiny_checkpoint(model_type, folder, head=head, max_position_embeddings=limit, **config)  # type: ignore[arg-type]
    edit(folder / "tokenizer_config.json", model_max_length=limit, **({"chat_template": template} if template else {}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    pieces = [*dict.fromkeys([*words, *"01234"]), "<think>", "</think>"]
    free = [i for i, (piece, _) in enumerate(vocab) if piece.startswith("<unused")]
    ids = dict(zip(pieces, free, strict=False)) | {"<|im_start|>": START_ID}
    for piece, i in ids.items():
        vocab[i] = [piece, -8.0]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for token, special in (("<think>", False), ("</think>", False), ("<|im_start|>", True)):
        tokenizer["added_tokens"].append({"id": ids[token], "content": token, "special": special, **flags})
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert len(vocab) == VOCAB_SIZE
    return folder


def edit(path: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | values))


JINA_MARKS = {"<|embed_token|>": 194, "<|rerank_token|>": 195}


def tiny_jina(folder: Path, *, limit: int, width: int = 32) -> Path:
    """Write a seeded listwise reranker: Qwen3, a projector without biases, and the two marks as tokens."""
    tiny_reranker(folder, "qwen3", head="base", limit=limit)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for mark, i in JINA_MARKS.items():
        tokenizer["model"]["vocab"][i] = [mark, -8.0]
        tokenizer["added_tokens"].append({"id": i, "content": mark, "special": True, **flags})
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    generator = torch.Generator().manual_seed(3)
    inner = HIDDEN_SIZE // 2
    weights = load_file(folder / "model.safetensors")
    weights["projector.0.weight"] = torch.randn(inner, HIDDEN_SIZE, generator=generator)
    weights["projector.2.weight"] = torch.randn(width, inner, generator=generator)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    edit(folder / "config.json", architectures=["JinaForRanking"])
    return folder

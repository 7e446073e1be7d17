"""The prompts of published rerankers, as their model cards and their own code write them.

Each piece is tokenised on its own there, so it is here.
"""

from __future__ import annotations

from collections.abc import Mapping

from cenote.checkpoint.spec import PromptFamily
from cenote.text.pair_prompt import PairPrompt, pieces

_QWEN3_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_QWEN3_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_QWEN3 = pieces(_QWEN3_BEFORE, "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}", _QWEN3_AFTER)
_MXBAI_BEFORE = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
)
_MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 "
    "for not relevant, 1 for relevant).\nRelevance:"
)
_MXBAI_DOCUMENT = ("\n", "document: {document}", "\n", _MXBAI_TASK, "<|im_end|>\n<|im_start|>assistant\n")

FAMILY_PROMPTS: Mapping[PromptFamily, PairPrompt] = {
    "qwen3-reranker": PairPrompt(
        plain=_QWEN3,
        instructed=_QWEN3,
        default_instruction="Given a web search query, retrieve relevant passages that answer the query",
    ),
    "mxbai-rerank-v2": PairPrompt(
        plain=pieces(_MXBAI_BEFORE, "query: {query}", *_MXBAI_DOCUMENT),
        instructed=pieces(_MXBAI_BEFORE, "instruction: {instruction}\nquery: {query}", *_MXBAI_DOCUMENT),
    ),
    "bge-reranker-v2-gemma": PairPrompt(
        plain=(),
        instructed=pieces("<bos>", "A: {query}", "\n", "B: {document}", "\n", "{instruction}"),
        default_instruction="Given a query A and a passage B, determine whether the passage contains an answer to the "
        "query by providing a prediction of either 'Yes' or 'No'.",
    ),
}
"""Sources: the model cards of Qwen3-Reranker, `mxbai_rerank`, FlagEmbedding's `FlagLLMReranker`."""

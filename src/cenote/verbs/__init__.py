"""What an engine can be asked to do, one file each.

A verb takes the `Core` and the caller's arguments, refuses what is wrong, queues the rest and returns a `Pending`.
`cenote.engine` turns each into a blocking and an awaitable method.
"""

from cenote.verbs.classify import classify, zero_shot
from cenote.verbs.embed import embed
from cenote.verbs.embed_all import embed_all
from cenote.verbs.embed_chunks import embed_chunks
from cenote.verbs.encode import encode
from cenote.verbs.pool import pool
from cenote.verbs.rerank import rerank
from cenote.verbs.reward import reward
from cenote.verbs.score import score
from cenote.verbs.token_classify import token_classify
from cenote.verbs.tokenize import chat_tokens, detokenize, tokenize, tokens

__all__ = [
    "chat_tokens",
    "classify",
    "detokenize",
    "embed",
    "embed_all",
    "embed_chunks",
    "encode",
    "pool",
    "rerank",
    "reward",
    "score",
    "token_classify",
    "tokenize",
    "tokens",
    "zero_shot",
]

"""`engine.embed`: one dense vector for each text."""

from __future__ import annotations

from cenote.core import Core, Pending
from cenote.outputs import Embeddings
from cenote.params import InputType, PoolingParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.long_texts import LongTextPolicy, LongTexts
from cenote.text.options import EncodeOptions, TruncationSide
from cenote.verbs._long_texts import read_texts


def embed(
    core: Core,
    texts: Texts,
    *,
    input_type: InputType | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
    max_tokens: int | None = None,
    add_special_tokens: bool = True,
    long_texts: LongTexts | None = None,
    chunk_overlap: int = 0,
    param: str = "texts",
) -> Pending[Embeddings]:
    """Embed `texts`: a string, a list of strings, one list of token ids, or a list of those.

    Returns a float32 array `(n, D)` in the order of `texts` that also has `.num_tokens` and `.truncated`. `dimensions`
    keeps the first values of each vector (matryoshka), cut before it is normalised. `None` means what the checkpoint
    asks for; a checkpoint without a Normalize module gives raw vectors. `input_type`, `prompt_name` and `prompt` choose
    what is put before each text. A text over the model's limit is cut, refused (`TooLongError`) or read in blocks, by
    `long_texts`: "truncate", "error" or "chunk"; `truncate` is the same choice without the third. `truncation_side`
    names the end that is cut, `max_tokens` lowers the limit. Without `add_special_tokens` the tokenizer's own are left
    out. Blocks share `chunk_overlap` tokens, and the text's vector
    is the mean of theirs, by their numbers of tokens. Raises `InputError` for a bad argument, by the name `param` where
    a text is at fault.
    """
    policy = LongTextPolicy.of(truncate, long_texts, chunk_overlap)
    params = PoolingParams(task="embed", dimensions=dimensions, use_activation=normalize)
    core.check(params)
    options = EncodeOptions(
        input_type=input_type,
        prompt_name=prompt_name,
        prompt=prompt,
        truncation_side=truncation_side,
        max_length=max_tokens,
        add_special_tokens=add_special_tokens,
        param=param,
    )
    read = read_texts(core, texts, options, policy)
    future = core.submit(read.sequences, core.task_params([params], read.sequences))
    assert core.spec.embed is not None
    normalized = core.spec.embed.normalize if normalize is None else normalize

    def assemble(answer: Answer) -> Embeddings:
        rows = read.vectors(answer.arrays("embed"), normalize=normalized)
        return Embeddings.wrap(rows, read.usage(answer))

    return Pending(future=future, assemble=assemble)

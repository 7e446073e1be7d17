"""`engine.encode`: several outputs of each text from one pass."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

from cenote.core import Core, Pending
from cenote.errors import InputError
from cenote.outputs import Encoded, SparseVector
from cenote.params import OUTPUT_TASKS, InputType, Output, OutputDtype, PoolingParams
from cenote.runtime.request import Answer
from cenote.text.inputs import Texts
from cenote.text.long_texts import LongTextPolicy, LongTexts
from cenote.text.options import EncodeOptions, TruncationSide
from cenote.verbs._long_texts import read_texts


def encode(
    core: Core,
    texts: Texts,
    outputs: Many[Output] = ("dense", "sparse", "multi_vector"),
    *,
    input_type: InputType | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    multi_vector_dimensions: int | None = None,
    multi_vector_dtype: OutputDtype | None = None,
    return_tokens: bool = False,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate: bool = True,
    truncation_side: TruncationSide | None = None,
    max_tokens: int | None = None,
    add_special_tokens: bool = True,
    long_texts: LongTexts | None = None,
    chunk_overlap: int = 0,
    param: str = "texts",
) -> Pending[Encoded]:
    """Run the model once over `texts` and give every one of `outputs`.

    Returns `Encoded`: `.dense` `(n, D)`, `.sparse` a `SparseVector` for each text, `.multi_vector` an array `(rows, D)`
    for each text, `None` for what was not asked for. `dimensions` cuts the dense vectors and `normalize` is theirs,
    `multi_vector_dimensions` cuts the others, `multi_vector_dtype` may be `"float16"`, `return_tokens` adds the token
    strings to the sparse vectors. `truncate`, `truncation_side`, `max_tokens`, `add_special_tokens`, `long_texts` and
    `chunk_overlap` are those of `embed`; "chunk" is for dense vectors alone. `param` is the name that errors give to
    `texts`. Raises `UnsupportedTaskError` for an output that the model does not have.
    """
    outputs = tuple(dict.fromkeys(outputs))
    sizes = {"dense": dimensions, "multi_vector": multi_vector_dimensions}
    params = [_params(output, sizes.get(output), multi_vector_dtype) for output in outputs]
    params = [replace(each, use_activation=normalize) if each.task == "embed" else each for each in params]
    if not params:
        raise InputError(f"name at least one of {', '.join(OUTPUT_TASKS)}", param="outputs")
    policy = LongTextPolicy.of(truncate, long_texts, chunk_overlap)
    if policy.kind == "chunk" and outputs != ("dense",):
        raise InputError(
            "long_texts='chunk' averages dense vectors; sparse and multi-vector outputs have no such mean: "
            "ask for outputs=('dense',), or cut the texts yourself",
            param="long_texts",
        )
    for output, each in zip(outputs, params, strict=True):
        _check(core, output, each)
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
    future = core.submit(read.sequences, core.task_params(params, read.sequences))
    normalized = core.spec.embed is not None and core.spec.embed.normalize if normalize is None else normalize

    def assemble(answer: Answer) -> Encoded:
        return Encoded(
            dense=read.vectors(answer.arrays("embed"), normalize=normalized) if "dense" in outputs else None,
            sparse=_sparse(core, answer, return_tokens) if "sparse" in outputs else None,
            multi_vector=answer.arrays("token_embed") if "multi_vector" in outputs else None,
            usage=read.usage(answer),
        )

    return Pending(future=future, assemble=assemble)


def _params(output: Output, dimensions: int | None, multi_vector_dtype: OutputDtype | None) -> PoolingParams:
    if output not in OUTPUT_TASKS:
        raise InputError(f"unknown output {output!r}; known outputs: {', '.join(OUTPUT_TASKS)}", param="outputs")
    return PoolingParams(
        task=OUTPUT_TASKS[output],
        dimensions=dimensions,
        output_dtype=multi_vector_dtype if output == "multi_vector" else None,
    )


def _check(core: Core, output: Output, params: PoolingParams) -> None:
    try:
        core.check(params)
    except InputError as error:
        if output != "multi_vector" or error.param != "dimensions":
            raise
        message = str(error).replace("dimensions", "multi_vector_dimensions", 1)
        raise InputError(message, param="multi_vector_dimensions") from None


def _sparse(core: Core, answer: Answer, return_tokens: bool) -> list[SparseVector]:
    vectors = answer.sparse("embed_sparse")
    if not return_tokens:
        return vectors
    return [replace(each, tokens=core.encoder.token_strings(each.indices)) for each in vectors]

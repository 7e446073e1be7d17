"""ColBERT against sentence-transformers' MultiVectorEncoder, text in and vectors out; listwise rows by hand."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from pooling_models import Served, serve, serve_spec
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from transformers import AutoModel, PreTrainedTokenizerFast

from cenote.checkpoint import read_checkpoint
from cenote.checkpoint.spec import DenseSpec, ListwiseSpec, MultiVectorSpec, TensorSource
from cenote.errors import EngineError, InputError
from cenote.params import InputType, PoolingParams
from cenote.text.encoder import TextEncoder
from cenote.text.options import EncodeOptions
from tiny import HIDDEN_SIZE
from tolerances import assert_close

QUERIES = ["the cat", "what is a cenote, really", ""]
DOCUMENTS = [
    "the cat sat . on the mat , twice !",
    "hello, world!",
    "!?.",
    "a text that is rather longer than the others are",
]
CheckpointFactory = Callable[..., Path]


def encode(served: Served, texts: Sequence[str], input_type: InputType) -> list[Any]:
    """Run texts as the engine would: its ids, its visible keys, its input type."""
    encoder = TextEncoder(served.spec.text, vocab_size=served.spec.vocab_size, max_length=served.spec.text.max_length)
    tokenized = encoder.encode(list(texts), EncodeOptions(input_type=input_type))
    wish = {"token_embed": PoolingParams(task="token_embed", input_type=input_type)}
    ids = [text.token_ids.tolist() for text in tokenized]
    answers = served.run(ids, [wish] * len(ids), [text.num_keys for text in tokenized])
    return [answer["token_embed"] for answer in answers]


def assert_same_as(reference: MultiVectorEncoder, served: Served) -> None:
    for texts, input_type, theirs in (
        (QUERIES, "query", reference.encode_query(QUERIES, batch_size=1)),
        (DOCUMENTS, "document", reference.encode_document(DOCUMENTS, batch_size=1)),
    ):
        for mine, expected in zip(encode(served, texts, input_type), theirs, strict=True):  # type: ignore[arg-type]
            assert_close(mine, np.asarray(expected))


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize("skiplist", [[], list(string.punctuation)])
def test_a_multi_vector_encoder(
    checkpoint: CheckpointFactory, tmp_path: Path, attend: bool, skiplist: list[str]
) -> None:
    torch.manual_seed(0)
    expansion = {"strategy": "fixed", "attend": attend, "length": 16}
    reference = MultiVectorEncoder(
        modules=[
            Transformer(str(checkpoint("bert")), query_length=None, document_length=40, query_expansion=expansion),
            Dense(HIDDEN_SIZE, 16, False, torch.nn.Identity(), module_input_name="token_embeddings"),
            MultiVectorMask(skiplist),
            Normalize("token_embeddings"),
        ],
        prompts={"query": "query: ", "document": "passage: "},
        device="cpu",
    )
    reference.save(str(tmp_path / "saved"), create_model_card=False)
    assert_same_as(reference, serve(tmp_path / "saved"))


def test_stanford_colbert(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = Path(copytree(checkpoint("bert"), tmp_path / "model"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["[unused0]", "[unused1]"])
    tokenizer.save_pretrained(folder)
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    weight = torch.randn(24, HIDDEN_SIZE, generator=torch.Generator().manual_seed(3))
    save_file(tensors | {"linear.weight": weight}, folder / "model.safetensors", metadata={"format": "pt"})
    config = (folder / "config.json").read_text().replace('"BertModel"', '"HF_ColBERT"')
    (folder / "config.json").write_text(config)
    assert_same_as(MultiVectorEncoder(str(folder), device="cpu"), serve(folder))


@pytest.fixture
def plain(checkpoint: CheckpointFactory) -> Served:
    """Token embeddings with a skiplist, no text layer needed."""
    spec = read_checkpoint(checkpoint("bert"), pooling="mean")
    part = MultiVectorSpec(normalize=False, skiplist_token_ids=(9, 12), dimensions=HIDDEN_SIZE)
    return serve_spec(spec, embed=None, token_embed=part)


def test_the_skiplist_is_read_and_only_documents_lose_it(plain: Served) -> None:
    ids = [[2, 9, 30, 12, 9, 3]]
    (raw,) = plain.run_task("token_embed", ids)
    (query,) = plain.run_task("token_embed", ids, input_type="query")
    (document,) = plain.run_task("token_embed", ids, input_type="document")
    assert_close(query, raw, "raw")
    assert_close(document, raw[[0, 2, 5]], "raw")
    assert plain.pooler.get_pooling_updates("token_embed").requires_token_ids


def test_a_skiplist_behind_a_dropped_first_row(plain: Served) -> None:
    """The rows that are left and the tokens that they stand for stay in step."""
    assert plain.spec.token_embed is not None
    part = replace(plain.spec.token_embed, drop_first=True)
    served = serve_spec(plain.spec, token_embed=part, config={**plain.spec.config, "bos_token_id": 2})
    ids = [[2, 9, 30, 12, 9, 3]]
    (raw,) = plain.run_task("token_embed", ids)
    (document,) = served.run_task("token_embed", ids, input_type="document")
    assert_close(document, raw[[2, 5]], "raw")


def test_a_document_of_skipped_tokens_has_no_rows(plain: Served) -> None:
    (document,) = plain.run_task("token_embed", [[9, 12]], input_type="document")
    assert document.shape == (0, HIDDEN_SIZE)


def test_rows_without_their_tokens_are_an_error(plain: Served) -> None:
    params = PoolingParams(task="token_embed", input_type="document")
    for ids in (None, np.array([1, 2])):
        with pytest.raises(EngineError, match="do not match"):
            plain.pooler.finish("token_embed", np.ones((3, 4), np.float32), ids, params)


def test_smaller_vectors_need_the_switch(plain: Served) -> None:
    with pytest.raises(InputError, match="any_dimensions"):
        plain.pooler.verify_params("token_embed", PoolingParams(task="token_embed", dimensions=8))


def test_a_listwise_reranker_gives_its_marks(checkpoint: CheckpointFactory, tmp_path: Path) -> None:
    folder = checkpoint("qwen3")
    torch.manual_seed(5)
    weights = {"projector.0.weight": torch.randn(32, HIDDEN_SIZE), "projector.2.weight": torch.randn(12, 32)}
    save_file(weights, tmp_path / "projector.safetensors")
    dense = tuple(
        DenseSpec(
            in_features=width, out_features=out, bias=False, activation=activation, weights=source(tmp_path, index)
        )
        for width, out, activation, index in ((HIDDEN_SIZE, 32, "ReLU", 0), (32, 12, "Identity", 2))
    )
    marks = {"document_token_id": 50, "query_token_id": 51}
    listwise = ListwiseSpec(**marks, max_documents=4, max_document_length=8, max_query_length=8)
    served = serve_spec(
        read_checkpoint(folder, pooling="last"),
        embed=None,
        listwise=listwise,
        token_embed=MultiVectorSpec(dense=dense, normalize=False, dimensions=12),
    )
    ids = [10, 51, 11, 50, 12, 13, 50]
    (rows,) = served.run_task("token_embed", [ids])
    hidden = AutoModel.from_pretrained(folder).eval()(input_ids=torch.tensor([ids])).last_hidden_state[0].detach()
    projected = torch.relu(hidden @ weights["projector.0.weight"].T) @ weights["projector.2.weight"].T
    assert_close(rows, projected[[3, 6, 1]], "raw")


def source(folder: Path, index: int) -> TensorSource:
    return TensorSource(path=folder / "projector.safetensors", prefix=f"projector.{index}.")


def test_the_same_vectors_alone_and_in_company(plain: Served) -> None:
    """BL-15: a document's vectors depend on nothing but the document."""
    texts = [[2, 9, 30, 3], [2, *range(20, 50), 3], [2, 3]]
    together = plain.run_task("token_embed", texts, input_type="document")
    for ids, rows in zip(texts, together, strict=True):
        assert_close(rows, plain.run_task("token_embed", [ids], input_type="document")[0], "raw")

"""How vectors are written. Reference for the bits: sentence-transformers' `quantize_embeddings`."""

from __future__ import annotations

import base64
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from running import RunningServer
from sentence_transformers.util.quantization import quantize_embeddings

from cenote.errors import InputError
from cenote.server.answers import to_json
from cenote.server.encodings import Encoding, VectorType, quantized

TEXTS = ["the cat", "a dog and a bird", "water", ""]
DTYPES = {"float": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}


def unit_vectors(rows: int = 7, width: int = 24) -> npt.NDArray[np.float32]:
    vectors = np.random.default_rng(3).standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["binary", "ubinary"])
def test_bits_equal_sentence_transformers(kind: VectorType) -> None:
    reference = quantize_embeddings(unit_vectors(), precision=kind)
    found = quantized(unit_vectors(), kind, "x")
    assert found.dtype == reference.dtype
    assert np.array_equal(found, reference)


def test_zero_is_a_set_bit_and_the_first_is_the_highest() -> None:
    vector = np.array([[0.0, -0.0, 1e-30, -1e-30, -1, -1, -1, -1]], dtype=np.float32)
    assert quantized(vector, "ubinary", "x").tolist() == [[0b11100000]]
    assert quantized(vector, "binary", "x").tolist() == [[0b11100000 - 128]]


def test_integers_have_a_fixed_scale() -> None:
    vector = np.array([[1.0, -1.0, 0.0, 0.5, -0.5, 1.00005, 0.0039]], dtype=np.float32)
    assert quantized(vector, "int8", "x").tolist() == [[127, -127, 0, 64, -64, 127, 0]]
    assert quantized(vector, "uint8", "x").tolist() == [[255, 1, 128, 192, 64, 255, 128]]


def test_quantised_vectors_stay_close() -> None:
    vectors = unit_vectors(width=64)
    assert np.abs(quantized(vectors, "int8", "x") / 127 - vectors).max() <= 0.5 / 127 + 1e-6
    assert np.abs(quantized(vectors, "float16", "x") - vectors).max() < 5e-4


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_values_outside_of_the_scale_are_refused(kind: VectorType) -> None:
    with pytest.raises(InputError, match=f"embedding_types {kind} holds values up to 1") as caught:
        quantized(unit_vectors() * 9, kind, "embedding_types")
    assert caught.value.param == "embedding_types"


def test_half_precision_has_no_infinity() -> None:
    with pytest.raises(InputError, match="65504"):
        quantized(np.full((1, 8), 70000, np.float32), "float16", "x")


@pytest.mark.parametrize("kind", ["binary", "ubinary"])
def test_bits_fill_whole_bytes(kind: VectorType) -> None:
    with pytest.raises(InputError, match="12 dimensions"):
        Encoding(type=kind).rows(unit_vectors(width=12), "x")


@pytest.mark.parametrize("kind", get_args(VectorType))
def test_base64_has_the_bytes_of_the_numbers(kind: VectorType) -> None:
    numbers = Encoding(type=kind).rows(unit_vectors(), "x")
    written = Encoding(type=kind, base64=True).rows(unit_vectors(), "x")
    for row, text in zip(numbers, written, strict=True):
        assert np.array_equal(np.frombuffer(base64.b64decode(text), DTYPES[kind]), row)


@pytest.mark.parametrize("kind", get_args(VectorType))
def test_no_vectors_are_no_rows(kind: VectorType) -> None:
    assert Encoding(type=kind).rows(np.zeros((0, 8), np.float32), "x") == []


def test_columns_in_other_order_are_written_in_theirs() -> None:
    vectors = np.asfortranarray(unit_vectors())
    assert to_json(Encoding().rows(vectors, "x")) == to_json(Encoding().rows(unit_vectors(), "x"))


ROUTES = {
    "openai": ("/openai/v1/embeddings", "input", "encoding_format", "dimensions"),
    "cohere": ("/cohere/v2/embed", "texts", "embedding_types", "output_dimension"),
    "jina": ("/jina/v1/embeddings", "input", "embedding_type", "dimensions"),
    "voyage": ("/voyage/v1/embeddings", "input", "output_dtype", "output_dimension"),
    "encode": ("/encode/v1/encode", "input", "encoding_format", "dimensions"),
}


def ask(kinds: RunningServer, dialect: str, kind: str, size: int) -> tuple[int, list[object]]:
    path, texts, encoding, dimensions = ROUTES[dialect]
    body = {"model": "dense", texts: TEXTS, encoding: [kind] if dialect == "cohere" else kind, dimensions: size}
    answer = kinds.http.post(path, json=body)
    found = answer.json()
    if answer.status_code != 200:
        return answer.status_code, [found]
    if dialect == "cohere":
        return 200, found["embeddings"][kind]
    return 200, [item["dense" if dialect == "encode" else "embedding"] for item in found["data"]]


@pytest.mark.parametrize("dialect", ROUTES)
@pytest.mark.parametrize("kind", get_args(VectorType))
def test_every_route_cuts_then_quantises(kinds: RunningServer, dialect: str, kind: VectorType) -> None:
    _, whole = ask(kinds, dialect, "float", 64)
    cut = np.asarray(whole, dtype=np.float32)[:, :16]
    expected = quantized(cut / np.linalg.norm(cut, axis=1, keepdims=True), kind, "x")
    status, rows = ask(kinds, dialect, kind, 16)
    assert status == 200
    assert len(rows[0]) == (2 if "binary" in kind else 16)  # type: ignore[arg-type]
    tolerance = {"float": 1e-6, "float16": 1e-3}.get(kind, 1)  # a value on the edge may fall to either side
    assert np.abs(np.asarray(rows, dtype=np.float64) - expected).max() <= (0 if "binary" in kind else tolerance)


@pytest.mark.parametrize("dialect", [name for name in ROUTES if name != "voyage"])
def test_every_route_writes_base64(kinds: RunningServer, dialect: str) -> None:
    _, numbers = ask(kinds, dialect, "float", 16)
    _, written = ask(kinds, dialect, "base64", 16)
    decoded = [np.frombuffer(base64.b64decode(str(row)), "<f4") for row in written]
    assert np.array_equal(np.stack(decoded), np.asarray(numbers, dtype=np.float32))


@pytest.mark.parametrize("dialect", ROUTES)
def test_every_route_refuses_bits_that_fill_no_bytes(kinds: RunningServer, dialect: str) -> None:
    status, body = ask(kinds, dialect, "binary", 12)
    assert status == (422 if dialect == "jina" else 400)
    assert "12 dimensions" in str(body)

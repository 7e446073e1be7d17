"""`huggingface_hub.InferenceClient`, unmodified. It posts to the address that it is given, so that names the route."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import assert_close
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from serving import QUERY, TEXTS, Server


@pytest.mark.parametrize("path", ["/tei/embed", "/tei", "/embed"])
def test_feature_extraction(server: Server, path: str) -> None:
    client = InferenceClient(server.url + path)
    assert_close(client.feature_extraction(TEXTS), server.vectors(TEXTS))
    assert_close(client.feature_extraction(TEXTS[0], truncate=True, normalize=True), server.vectors(TEXTS[:1]))


def test_sentence_similarity(server: Server) -> None:
    found = InferenceClient(f"{server.url}/tei/similarity").sentence_similarity(QUERY, TEXTS)
    vectors = server.vectors([QUERY, *TEXTS])
    assert_close(found, vectors[1:] @ vectors[0])
    assert np.argmax(found) == 0


def test_text_classification(server: Server) -> None:
    """The client gives the first entry of what it gets, and TEI gives one list for one text, best label first."""
    client = InferenceClient(f"{server.url}/tei/predict")
    (expected,) = server.post("/vllm/classify", model="my-classifier", input=TEXTS[0])["data"]
    best = client.text_classification(TEXTS[0])
    assert best.label == expected["label"]
    assert_close(best.score, max(expected["probs"]))
    found = client.text_classification([[TEXTS[0]]])
    assert_close([each.score for each in found], sorted(expected["probs"], reverse=True))
    assert {each.label for each in found} == {"negative", "neutral", "positive"}


def test_errors_say_what_is_wrong(server: Server) -> None:
    client = InferenceClient(f"{server.url}/tei/embed")
    with pytest.raises(HfHubHTTPError) as refused:
        client.feature_extraction("a", dimensions=7)
    assert refused.value.response.status_code == 422
    assert refused.value.response.json()["error_type"] == "Validation"

"""Haystack's components for OpenAI and for TEI, unmodified."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import assert_close, assert_ranked
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker, TruncationDirection
from serving import MODEL, QUERY, TEXTS, Server

KEY = Secret.from_token("none")


def test_text(server: Server) -> None:
    embedder = OpenAITextEmbedder(api_key=KEY, model=MODEL, api_base_url=f"{server.url}/v1")
    answer = embedder.run(TEXTS[0])
    assert_close(answer["embedding"], server.vectors(TEXTS[:1])[0])
    assert answer["meta"]["model"] == MODEL


@pytest.mark.parametrize("base", ["/v1", "/openai/v1"])
def test_documents(server: Server, base: str) -> None:
    embedder = OpenAIDocumentEmbedder(
        api_key=KEY, model=MODEL, api_base_url=server.url + base, batch_size=3, progress_bar=False
    )
    answer = embedder.run([Document(content=text) for text in TEXTS])
    assert_close([document.embedding for document in answer["documents"]], server.vectors(TEXTS))
    assert answer["meta"]["usage"]["total_tokens"] > len(TEXTS)


@pytest.mark.parametrize("base", ["/tei/", ""])
def test_tei_ranker(server: Server, base: str) -> None:
    """It takes the path off its address, so that it asks the bare route whatever it is given."""
    ranker = HuggingFaceTEIRanker(url=server.url + base, top_k=3, token=None)
    documents = [Document(content=text, meta={"place": index}) for index, text in enumerate(TEXTS)]
    ranked = ranker.run(query=QUERY, documents=documents)["documents"]
    assert_ranked([(each.meta["place"], each.score) for each in ranked], server.ranking(TEXTS)[:3])


def test_tei_ranker_with_cut_texts(server: Server) -> None:
    ranker = HuggingFaceTEIRanker(url=server.url, token=None)
    documents = [Document(content=TEXTS[0]), Document(content="the cave " * 300)]
    ranked = ranker.run(query=QUERY, documents=documents, truncation_direction=TruncationDirection.RIGHT)["documents"]
    assert {each.content for each in ranked} == {each.content for each in documents}


def test_tei_ranker_is_told_what_is_wrong_and_does_not_repeat_it(server: Server) -> None:
    before = server.num_requests(422)
    with pytest.raises(RuntimeError, match="query"):
        HuggingFaceTEIRanker(url=server.url, token=None).run(query=3, documents=[Document(content="a")])
    assert server.num_requests(422) == before + 1


@pytest.mark.parametrize(("path", "normalize"), [("/tei", True), ("/tei/embed", False)])
def test_tei_embedder(server: Server, path: str, normalize: bool) -> None:
    embedder = HuggingFaceAPITextEmbedder(
        api_type="text_embeddings_inference",
        api_params={"url": server.url + path},
        token=None,
        normalize=normalize,
    )
    found = np.array(embedder.run(text=TEXTS[0])["embedding"])
    assert abs(np.linalg.norm(found) - 1) < 1e-5 if normalize else np.linalg.norm(found) > 2
    assert_close(found / np.linalg.norm(found), server.vectors(TEXTS[:1])[0])

"""BL-43: every field of an imitated API that changes numbers, order or what is read is honoured, or refused by name.

The walk sends each field of each route with a value that must change the answer. What the changed answer should be is
compared with transformers below, where the engine's own tests do not do so already.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic.fields import FieldInfo
from running import RunningServer, ask, run_server
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from cenote.engine import AsyncEngine
from cenote.runtime.loop import Loop
from cenote.server.dialects import DIALECTS
from cenote.server.endpoint import choose
from cenote.server.paths import bare_paths, own_paths
from cenote.server.schemas import NoMeaning, Refused
from reranker_folders import PAIR_TEMPLATE, tiny_jina, tiny_reranker
from tiny import HIDDEN_SIZE, add_sentence_transformers_files, tiny_checkpoint
from tolerances import assert_close

LONG = "water on the stone and a bird by the river in the light of the fire " * 8
TEXTS = [LONG, "the cat", "a dog and a bird"]
CHAT = [{"role": "the", "content": "cat"}, {"role": "dog", "content": LONG}]
TEMPLATE = (
    "{{ mood }}{% for m in messages %}{{ m['role'] }} {{ m['content'] }} stone {% endfor %}"
    "{% if add_generation_prompt %}the water{% endif %}"
)
Body = dict[str, Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("honoured")
    prompts = {"query": "the cat: ", "document": "a dog: ", "classification": "water: "}
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    made = {
        "dense": tiny_checkpoint("bert", root / "dense"),
        "other": tiny_checkpoint("bert", root / "other", seed=1),
        "chat": tiny_checkpoint("qwen2", root / "chat"),
        "m3": tiny_checkpoint("xlm-roberta", root / "m3"),
        "other_m3": tiny_checkpoint("xlm-roberta", root / "other_m3", seed=1),
        "pairs": tiny_checkpoint("bert", root / "pairs", head="sequence_classification", num_labels=1),
        "labels": tiny_checkpoint("bert", root / "labels", head="sequence_classification", **labels),
        "reward": tiny_checkpoint("qwen2", root / "reward", head="sequence_classification", num_labels=1),
        "prompted": tiny_reranker(root / "Qwen3-Reranker-0.6B", template=PAIR_TEMPLATE),
        "listwise": tiny_jina(root / "listwise", limit=1024),
    }
    for name in ("dense", "other", "chat"):
        add_sentence_transformers_files(made[name], normalize=True, prompts=prompts)
    for name in ("chat", "reward"):
        (made[name] / "chat_template.jinja").write_text(TEMPLATE)
    torch.manual_seed(5)
    for name in ("m3", "other_m3"):
        for head, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
            torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), made[name] / f"{head}.pt")
        (made[name] / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return made


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[RunningServer]:
    loop = Loop()
    engines = {
        name: AsyncEngine(
            folder,
            loop=loop,
            threads=1,
            dtype="float32",
            task="rerank" if name == "prompted" else None,
            any_dimensions=name in ("dense", "other", "chat", "m3"),
        )
        for name, folder in folders.items()
    }
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()
    loop.close()


EMBED = {"model": "dense", "input": TEXTS}
RANK = {"model": "pairs", "query": "the cat by the river", "documents": TEXTS}
MESSAGES = {"input": None, "messages": CHAT[:1]}
CHATS = {**MESSAGES, "model": "chat"}
REWARDS = {**MESSAGES, "model": "reward"}
BASES: dict[str, Body] = {
    "/openai/v1/embeddings": EMBED,
    "/cohere/v1/embed": {"model": "dense", "texts": TEXTS},
    "/cohere/v2/embed": {"model": "dense", "texts": TEXTS},
    "/cohere/v1/rerank": RANK,
    "/cohere/v2/rerank": RANK,
    "/tei/embed": {"model": "dense", "inputs": TEXTS},
    "/tei/": {"model": "dense", "inputs": TEXTS},
    "/tei/embed_all": {"model": "dense", "inputs": TEXTS},
    "/tei/embed_sparse": {"model": "m3", "inputs": TEXTS},
    "/tei/similarity": {"model": "dense", "inputs": {"source_sentence": LONG, "sentences": TEXTS}},
    "/tei/predict": {"model": "labels", "inputs": [[text] for text in TEXTS]},
    "/tei/rerank": {"model": "pairs", "query": RANK["query"], "texts": TEXTS},
    "/tei/tokenize": {"model": "dense", "inputs": TEXTS},
    "/tei/decode": {"model": "dense", "ids": [2, 5, 6, 3]},
    "/tei/v1/embeddings": EMBED,
    "/tei/embeddings": EMBED,
    "/jina/v1/embeddings": EMBED,
    "/jina/v1/multi-vector": {"model": "m3", "input": TEXTS},
    "/jina/v1/rerank": RANK,
    "/jina/v1/classify": {"model": "labels", "input": TEXTS},
    "/voyage/v1/embeddings": EMBED,
    "/voyage/v1/contextualizedembeddings": {"model": "dense", "inputs": [TEXTS[1:], ["the water", "a bird"]]},
    "/voyage/v1/rerank": RANK,
    "/encode/v1/encode": {"model": "m3", "input": TEXTS},
    "/vllm/v1/embeddings": {**EMBED, "truncate_prompt_tokens": -1},
    "/vllm/v2/embed": {"model": "dense", "texts": TEXTS},
    "/vllm/pooling": {**EMBED, "truncate_prompt_tokens": -1},
    "/vllm/classify": {"model": "labels", "input": TEXTS, "truncate_prompt_tokens": -1},
    "/vllm/score": {"model": "pairs", "queries": RANK["query"], "documents": TEXTS},
    "/vllm/v1/score": {"model": "pairs", "queries": RANK["query"], "documents": TEXTS},
    "/vllm/rerank": RANK,
    "/vllm/v1/rerank": RANK,
    "/vllm/v2/rerank": RANK,
    "/vllm/tokenize": {"model": "chat", "messages": CHAT[:1]},
    "/vllm/detokenize": {"model": "chat", "tokens": [5, 6]},
}
"""A request of each route, with a text over the limit of 64 tokens in it."""

REAL: dict[str, str] = {
    "/openai/v1/embeddings": "input model encoding_format dimensions",
    "/cohere/v1/embed": "texts model input_type embedding_types truncate images",
    "/cohere/v2/embed": "texts model input_type embedding_types truncate images inputs max_tokens output_dimension",
    "/cohere/v1/rerank": "query documents model top_n rank_fields return_documents max_chunks_per_doc",
    "/cohere/v2/rerank": "query documents model top_n max_tokens_per_doc",
    "/tei/embed": "inputs truncate truncation_direction prompt_name normalize dimensions",
    "/tei/embed_all": "inputs truncate truncation_direction prompt_name",
    "/tei/embed_sparse": "inputs truncate truncation_direction prompt_name",
    "/tei/similarity": "inputs parameters",
    "/tei/predict": "inputs truncate truncation_direction raw_scores",
    "/tei/rerank": "query texts truncate truncation_direction raw_scores return_text",
    "/tei/tokenize": "inputs add_special_tokens prompt_name",
    "/tei/decode": "ids skip_special_tokens",
    "/tei/v1/embeddings": "input model encoding_format dimensions",
    "/jina/v1/embeddings": "input model task dimensions late_chunking embedding_type normalized truncate "
    "return_multivector",
    "/jina/v1/multi-vector": "input model input_type embedding_type dimensions",
    "/jina/v1/rerank": "query documents model top_n return_documents",
    "/jina/v1/classify": "input model labels classifier_id",
    "/voyage/v1/embeddings": "input model input_type truncation output_dimension output_dtype encoding_format",
    "/voyage/v1/contextualizedembeddings": "inputs model input_type output_dimension output_dtype encoding_format",
    "/voyage/v1/rerank": "query documents model top_k truncation return_documents",
    **dict.fromkeys(
        ("/vllm/v1/embeddings", "/vllm/pooling"),
        "model truncate_prompt_tokens truncation_side padding mm_processor_kwargs input messages add_special_tokens "
        "add_generation_prompt continue_final_message chat_template chat_template_kwargs media_io_kwargs "
        "encoding_format embed_dtype endianness dimensions use_activation normalize",
    ),
    "/vllm/classify": "model truncate_prompt_tokens truncation_side padding mm_processor_kwargs input messages "
    "add_special_tokens add_generation_prompt continue_final_message chat_template chat_template_kwargs "
    "media_io_kwargs use_activation normalize",
    **dict.fromkeys(
        ("/vllm/score", "/vllm/v1/score"),
        "model truncate_prompt_tokens truncation_side padding mm_processor_kwargs use_activation queries documents "
        "items data_1 data_2 text_1 text_2 max_tokens_per_query max_tokens_per_doc instruction chat_template_kwargs",
    ),
    **dict.fromkeys(
        ("/vllm/rerank", "/vllm/v1/rerank", "/vllm/v2/rerank"),
        "model truncate_prompt_tokens truncation_side padding mm_processor_kwargs use_activation query documents top_n "
        "max_tokens_per_query max_tokens_per_doc instruction chat_template_kwargs",
    ),
    "/vllm/v2/embed": "model texts images inputs input_type output_dimension embedding_types truncate max_tokens",
    "/vllm/tokenize": "prompt messages model add_special_tokens return_token_strs add_generation_prompt "
    "continue_final_message chat_template chat_template_kwargs tools mm_processor_kwargs media_io_kwargs",
    "/vllm/detokenize": "tokens model",
}
"""The fields with a meaning that the real service of each route has, from its own schema or pages."""

VALUES: dict[str, tuple[Any, Body]] = {
    "input": (["a dog"], {}),
    "inputs": (["a dog"], {}),
    "texts": (["a dog"], {}),
    "documents": (["a dog", "the cat"], {}),
    "query": ("water", {}),
    "queries": ("water", {}),
    "items": (["a dog"], {"documents": None}),
    "data_1": ("water", {"queries": None, "documents": None, "data_2": TEXTS}),
    "data_2": (["a dog"], {"queries": None, "documents": None, "data_1": "the cat"}),
    "text_1": ("water", {"queries": None, "documents": None, "text_2": TEXTS}),
    "text_2": (["a dog"], {"queries": None, "documents": None, "text_1": "the cat"}),
    "messages": (CHAT, {"model": "chat", "input": None}),
    "prompt": ("the cat", {"messages": None}),
    "tokens": ([7], {}),
    "ids": ([7], {}),
    "model": ("other", {}),
    "parameters": ({"truncation_direction": "Left"}, {}),
    "labels": (["the cat", "water"], {"model": "dense"}),
    "params": ({"dimensions": 16}, {}),
    "task": ("retrieval.query", {}),
    "input_type": ("query", {}),
    "prompt_name": ("query", {}),
    "dimensions": (16, {}),
    "output_dimension": (16, {}),
    "multi_vector_dimensions": (16, {}),
    "encoding_format": ("base64", {}),
    "embed_dtype": ("float16", {"encoding_format": "base64"}),
    "endianness": ("big", {"encoding_format": "base64"}),
    "embedding_type": ("int8", {}),
    "encoding_type": ("int8", {}),
    "embedding_types": (["int8"], {}),
    "output_dtype": ("int8", {}),
    "outputs": (["sparse"], {"model": "m3"}),
    "return_tokens": (True, {}),
    "return_token_strs": (True, {}),
    "return_text": (True, {}),
    "return_documents": (True, {}),
    "normalize": (False, {}),
    "normalized": (False, {}),
    "use_activation": (False, {}),
    "raw_scores": (True, {}),
    "late_chunking": (True, {}),
    "truncate": (False, {}),
    "truncation": (False, {}),
    "truncation_side": ("left", {}),
    "truncation_direction": ("Left", {}),
    "truncate_prompt_tokens": (20, {}),
    "max_tokens": (5, {}),
    "max_tokens_per_query": (2, {}),
    "max_tokens_per_doc": (5, {}),
    "top_n": (1, {}),
    "top_k": (1, {}),
    "rank_fields": (["b"], {"documents": [{"text": "a dog", "b": "water"}, {"text": "the cat", "b": "light"}]}),
    "instruction": ("Find the water.", {"model": "prompted"}),
    "add_special_tokens": (False, {}),
    "skip_special_tokens": (False, {}),
    "long_texts": ("chunk", {}),
    "chunk_overlap": (8, {"long_texts": "chunk"}),
    "add_generation_prompt": (True, CHATS),
    "continue_final_message": (True, CHATS),
    "chat_template_kwargs": ({"mood": "light "}, CHATS),
    "padding": ("max_length", {}),
    "chat_template": ("{{ messages }}", {}),
    "mm_processor_kwargs": ({"num_crops": 4}, {}),
    "media_io_kwargs": ({"image": {"mode": "RGB"}}, {}),
    "images": (["data:image/png;base64,AAAA"], {}),
    "max_chunks_per_doc": (4, {}),
    "return_multivector": (True, {}),
    "late_chunking_params": ({"chunk_size": 8}, {}),
    "classifier_id": ("mine", {}),
    "tools": ([{"type": "function"}], {}),
    "data": ({"a": 1}, {}),
}
"""For each field a value that must change the answer, and what else the request needs for that."""

INSTRUCTED = ({"instruction": "Find the water."}, {"model": "prompted"})
SPECIAL: dict[tuple[str, str], tuple[Any, Body]] = {
    **{(path, "inputs"): ([{"content": [{"type": "text", "text": "a dog"}]}], {"texts": None}) for path in BASES},
    ("/tei/embed", "inputs"): ("a dog", {}),
    ("/tei/", "inputs"): ("a dog", {}),
    ("/tei/embed_all", "inputs"): ("a dog", {}),
    ("/tei/embed_sparse", "inputs"): ("a dog", {}),
    ("/tei/similarity", "inputs"): ({"source_sentence": "a dog", "sentences": TEXTS}, {}),
    ("/tei/predict", "inputs"): ("a dog", {}),
    ("/tei/tokenize", "inputs"): ("a dog", {}),
    ("/voyage/v1/contextualizedembeddings", "inputs"): ([["a dog"]], {}),
    ("/tei/tokenize", "prompt_name"): ("query", {}),
    ("/tei/embed_sparse", "prompt_name"): ("query", {}),
    ("/vllm/pooling", "task"): ("token_embed", {"model": "m3"}),
    ("/jina/v1/embeddings", "late_chunking"): (True, {"input": TEXTS[1:]}),
    ("/jina/v1/classify", "labels"): (["the cat", "water"], {"model": "dense", "labels": ["fire"]}),
    ("/tei/tokenize", "model"): ("chat", {}),
    ("/tei/decode", "model"): ("chat", {"ids": [50, 60, 70]}),
    ("/jina/v1/rerank", "return_documents"): (False, {}),
    ("/vllm/tokenize", "messages"): ([*CHAT, *CHAT], {}),
    ("/vllm/tokenize", "add_special_tokens"): (False, {"model": "dense", "messages": None, "prompt": "the cat"}),
    ("/tei/predict", "model"): ("pairs", {}),
    ("/vllm/classify", "model"): ("reward", {}),
    ("/jina/v1/classify", "model"): ("dense", {"labels": ["the cat", "water"]}),
    ("/vllm/classify", "messages"): (CHAT, {"model": "reward", "input": None}),
    **{(path, "chat_template_kwargs"): INSTRUCTED for path in BASES if path.endswith(("rerank", "score"))},
    ("/vllm/classify", "add_generation_prompt"): (True, REWARDS),
    ("/vllm/classify", "continue_final_message"): (True, REWARDS),
    ("/vllm/classify", "chat_template_kwargs"): ({"mood": "light "}, REWARDS),
    ("/vllm/tokenize", "add_generation_prompt"): (False, {}),
    ("/vllm/tokenize", "continue_final_message"): (True, {}),
    ("/vllm/tokenize", "chat_template_kwargs"): ({"mood": "light "}, {}),
}
"""Where a route needs something else than `VALUES`."""

INSTEAD = {"messages", "prompt", "items", "data_1", "data_2", "text_1", "text_2", "inputs"}
"""Fields that stand for a required one."""
WITHOUT_EFFECT = {("/cohere/v2/rerank", "return_documents")}
"""Fields that another version of the API has: documents are no number, no order, and not read."""
NO_OTHER_MODEL = {"/tei/embed_sparse", "/jina/v1/multi-vector", "/encode/v1/encode"}


def fields_of(path: str) -> dict[str, FieldInfo]:
    dialect = next(each for each in DIALECTS if path.startswith(f"/{each.name}/"))
    ((offer,),) = (
        found for place, found in own_paths(dialect).items() if place == ("POST", path[len(dialect.name) + 1 :])
    )
    assert offer.operation.body is not None
    return dict(offer.operation.body.model_fields)


def marked(field: FieldInfo, kind: type) -> bool:
    return any(isinstance(mark, kind) for mark in field.metadata)


def request_for(path: str, field: str) -> tuple[Body, Any]:
    """Return a body without the field, and the value of the field that must change its answer."""
    value, more = SPECIAL.get((path, field)) or VALUES[field]
    if field == "model" and path in NO_OTHER_MODEL:
        value = "other_m3"
    if field == "model" and (path.endswith(("rerank", "score"))):
        value = "dense"
    body = {name: each for name, each in {**BASES[path], **more}.items() if name in fields_of(path)}
    return body, value


def send(server: RunningServer, path: str, body: Body) -> tuple[int, Any]:
    answer = server.http.post(path, json=body, headers={"x-request-id": "same"})
    if answer.headers["content-type"] != "application/json":
        return answer.status_code, answer.content
    content = answer.json()
    if isinstance(content, dict):
        content.pop("created", None)
    return answer.status_code, content


def test_every_route_has_a_row() -> None:
    routes = {
        f"/{dialect.name}{path}"
        for dialect in DIALECTS
        for (_, path), offers in own_paths(dialect).items()
        if offers[0].operation.body is not None
    }
    assert routes == set(BASES)


@pytest.mark.parametrize("path", REAL)
def test_the_fields_of_the_real_api_are_known(path: str) -> None:
    known = fields_of(path)
    for name in REAL[path].split():
        assert name in known, name
        assert not marked(known[name], NoMeaning), name


WALK = [
    (path, name)
    for path in BASES
    for name, field in fields_of(path).items()
    if not marked(field, NoMeaning) and (path, name) not in WITHOUT_EFFECT
]


@pytest.mark.parametrize(("path", "field"), WALK)
def test_a_value_changes_the_answer_or_is_refused_by_name(server: RunningServer, path: str, field: str) -> None:
    body, value = request_for(path, field)
    plain = send(server, path, body)
    status, answer = send(server, path, {**body, field: value})
    if marked(fields_of(path)[field], Refused):
        assert 400 <= status < 500, answer
        assert field in json.dumps(answer)
        assert send(server, path, {**body, field: None}) == plain
        return
    assert plain[0] == 200 or field in BASES[path] or field in INSTEAD, plain
    assert (status, answer) != plain
    if status != 200:
        assert field in json.dumps(answer) or "allow truncation" in json.dumps(answer), answer


@pytest.mark.parametrize("path", sorted({path for method, path in bare_paths(DIALECTS) if method == "POST"}))
def test_a_field_of_another_api_on_the_same_path_is_not_dropped(server: RunningServer, path: str) -> None:
    """Each pair of APIs on a bare path: a request of one with a field that only the other has."""
    offers = bare_paths(DIALECTS)["POST", path]
    for chosen in offers:
        own_path = f"/{chosen.dialect.name}{path}"
        if own_path not in BASES:
            own_path = f"/{chosen.dialect.name}/v1{path}"
        marks = {mark: VALUES[mark][0] for mark in sorted(chosen.operation.marks)[:1]}
        own = fields_of(own_path)
        if choose(offers, {**BASES[own_path], **marks}) is not chosen:
            continue  # another API has all its fields and comes first
        for other in offers:
            assert other.operation.body is not None
            for name, field in other.operation.body.model_fields.items():
                if name in own or marked(field, NoMeaning) or name in other.operation.marks:
                    continue
                body = {**BASES[own_path], **marks, name: VALUES[name][0]}
                status, answer = send(server, path, body)
                assert 400 <= status < 500, (chosen.dialect.name, name, answer)
                assert name in json.dumps(answer)


RERANK_ROUTES = [
    *("/rerank", "/v1/rerank", "/v2/rerank", "/cohere/v1/rerank", "/cohere/v2/rerank", "/jina/v1/rerank"),
    *("/voyage/v1/rerank", "/tei/rerank", "/vllm/rerank", "/vllm/v1/rerank", "/vllm/v2/rerank"),
]


def ranks(server: RunningServer, path: str, **fields: Any) -> dict[int, float]:
    body = {**RANK, **fields}
    if path == "/tei/rerank":
        body["texts"] = body.pop("documents")
    status, answer = send(server, path, body)
    assert status == 200, answer
    found = answer if isinstance(answer, list) else answer.get("results", answer.get("data"))
    return {each["index"]: each["score" if path == "/tei/rerank" else "relevance_score"] for each in found}


@pytest.mark.parametrize("path", RERANK_ROUTES)
class TestRankings:
    @pytest.mark.parametrize(
        ("fields", "keywords"),
        [
            ({"model": "prompted", "instruction": "Find it."}, {"instruction": "Find it."}),
            ({"model": "listwise", "instruction": "Find it."}, {"instruction": "Find it."}),
            ({"model": "listwise", "truncate_prompt_tokens": 900}, {"max_tokens": 900}),
            ({"use_activation": False}, {"raw_scores": True}),
            ({"raw_scores": True}, {"raw_scores": True}),
            ({"use_activation": True, "raw_scores": False}, {}),
            ({"max_tokens_per_query": 2}, {"max_tokens_per_query": 2}),
            ({"max_tokens_per_doc": 2.0}, {"max_tokens_per_doc": 2}),
            ({"truncate_prompt_tokens": 20}, {"max_tokens": 20}),
            ({"model": "dense", "truncate_prompt_tokens": 20}, {"max_tokens": 20}),
            ({"model": "prompted", "truncate_prompt_tokens": 200}, {"max_tokens": 200}),
            ({"truncate_prompt_tokens": -1}, {}),
            ({"truncation_side": "left"}, {"truncation_side": "left"}),
        ],
    )
    def test_the_engine_is_asked_for_it(self, server: RunningServer, path: str, fields: Body, keywords: Body) -> None:
        model = str(fields.get("model", "pairs"))
        expected = ask(server.engines[model].rerank(RANK["query"], TEXTS, **keywords))
        found = ranks(server, path, **fields)
        assert list(found) == [each.index for each in expected]
        assert_close(np.array(list(found.values())), np.array([each.score for each in expected]), "raw")

    def test_a_pair_is_cut_as_transformers_does(
        self, server: RunningServer, folders: dict[str, Path], path: str
    ) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folders["pairs"])
        model = AutoModelForSequenceClassification.from_pretrained(folders["pairs"]).eval()
        found = ranks(server, path, truncate_prompt_tokens=20, use_activation=False)
        for index, text in enumerate(TEXTS):
            encoded = tokenizer(RANK["query"], text, truncation=True, max_length=20, return_tensors="pt")
            with torch.inference_mode():
                assert_close(np.array([found[index]]), model(**encoded).logits[0], "raw")

    @pytest.mark.parametrize("model", ["pairs", "dense"])
    @pytest.mark.parametrize("fields", [{"instruction": "Find it."}, {"chat_template_kwargs": {"instruction": "Do."}}])
    def test_a_model_that_reads_no_instruction_says_so(
        self, server: RunningServer, path: str, model: str, fields: Body
    ) -> None:
        if path in ("/v1/rerank", "/rerank") and model == "dense":
            fields = {**fields, "top_n": 1}
        body = {**RANK, "model": model, **fields}
        if path == "/tei/rerank":
            body["texts"] = body.pop("documents")
            body.pop("top_n", None)
        status, answer = send(server, path, body)
        assert status in (400, 422), answer
        assert "instruction" in json.dumps(answer)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *[("truncate_prompt_tokens", value) for value in (0, -2, 65, 2, 2.5, [1])],
            *[("max_tokens_per_query", value) for value in (-1, 1.5, {})],
            ("chat_template_kwargs", {"enable_thinking": False}),
            ("chat_template_kwargs", {"instruction": 3}),
            ("padding", "max_length"),
            ("add_special_tokens", False),
        ],
    )
    def test_what_cannot_be_done_is_named(self, server: RunningServer, path: str, field: str, value: Any) -> None:
        body = {**RANK, field: value}
        if path == "/tei/rerank":
            body["texts"] = body.pop("documents")
        status, answer = send(server, path, body)
        assert status == (422 if path.startswith(("/jina", "/tei")) else 400), answer
        assert field in json.dumps(answer)

    def test_contradictions_are_refused(self, server: RunningServer, path: str) -> None:
        body = {**RANK, "use_activation": True, "raw_scores": True}
        if path == "/tei/rerank":
            body["texts"] = body.pop("documents")
        status, answer = send(server, path, body)
        assert status in (400, 422), answer
        assert "use_activation" in json.dumps(answer)


def vectors(server: RunningServer, path: str, **fields: Any) -> np.ndarray:
    status, answer = send(server, path, {**BASES["/vllm/v1/embeddings"], **fields})
    assert status == 200, answer
    return np.array([each["embedding"] for each in answer["data"]], np.float64)


def reference(folder: Path, text: str, **tokenizer_options: Any) -> np.ndarray:
    """Return the mean of the hidden states of one text, by transformers."""
    options = {"truncation": True, "max_length": 64, **tokenizer_options}
    encoded = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", **options)
    model = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        mean: np.ndarray = model(**encoded).last_hidden_state[0].double().numpy().mean(axis=0)
    return mean


EMBED_ROUTES = [
    *("/v1/embeddings", "/embeddings", "/openai/v1/embeddings", "/vllm/v1/embeddings", "/jina/v1/embeddings"),
    *("/voyage/v1/embeddings", "/tei/v1/embeddings"),
]


@pytest.mark.parametrize("path", EMBED_ROUTES)
class TestVectors:
    @pytest.mark.parametrize(
        ("fields", "tokenizer_options"),
        [
            ({}, {}),
            ({"truncate_prompt_tokens": 5}, {"max_length": 5}),
            ({"truncate_prompt_tokens": 64}, {}),
            ({"add_special_tokens": False}, {"add_special_tokens": False}),
            (
                {"add_special_tokens": False, "truncate_prompt_tokens": 7.0},
                {"add_special_tokens": False, "max_length": 7},
            ),
        ],
    )
    def test_equal_to_transformers(
        self, server: RunningServer, folders: dict[str, Path], path: str, fields: Body, tokenizer_options: Body
    ) -> None:
        raw = np.stack([reference(folders["dense"], text, **tokenizer_options) for text in TEXTS])
        assert_close(vectors(server, path, **fields, use_activation=False), raw, "raw")
        unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        assert_close(vectors(server, path, **fields), unit)
        assert_close(vectors(server, path, **fields, use_activation=True), unit)

    def test_the_left_end_is_cut(self, server: RunningServer, folders: dict[str, Path], path: str) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folders["dense"], truncation_side="left")
        encoded = tokenizer(LONG, truncation=True, max_length=9, return_tensors="pt")
        with torch.inference_mode():
            model = AutoModel.from_pretrained(folders["dense"]).eval()
            raw = model(**encoded).last_hidden_state[0].double().numpy().mean(axis=0)
        found = vectors(
            server, path, input=LONG, truncate_prompt_tokens=9, truncation_side="left", use_activation=False
        )
        assert_close(found[0], raw, "raw")

    def test_usage_counts_what_was_read(self, server: RunningServer, path: str) -> None:
        _, answer = send(server, path, {**EMBED, "truncate_prompt_tokens": 5})
        assert answer["usage"]["total_tokens"] <= 15

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *[("truncate_prompt_tokens", value) for value in (0, -2, 65, 1, 1.5)],
            ("truncation_side", "middle"),
            ("padding", "max_length"),
            ("mm_processor_kwargs", {"a": 1}),
        ],
    )
    def test_what_cannot_be_done_is_named(self, server: RunningServer, path: str, field: str, value: Any) -> None:
        status, answer = send(server, path, {**EMBED, field: value})
        assert status == (422 if path.startswith(("/jina", "/tei")) else 400), answer
        assert field in json.dumps(answer)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/embeddings", {"normalize": True, "use_activation": False}),
        ("/v1/embeddings", {"normalized": True, "use_activation": False}),
        ("/v1/embeddings", {"truncation_side": "right", "truncate": "START"}),
        ("/v1/embeddings", {"long_texts": "chunk", "truncate_prompt_tokens": 5}),
        ("/v1/embeddings", {"late_chunking": True, "truncate_prompt_tokens": 5}),
        ("/v1/embeddings", {"late_chunking": True, "truncation_side": "left"}),
        ("/v1/embeddings", {"output_dtype": "int8", "dimensions": 16}),
        ("/v1/embeddings", {"task": "separation", "output_dimension": 16}),
        ("/vllm/v1/embeddings", {"normalize": False}),
        ("/vllm/pooling", {"normalize": False}),
        ("/pooling", {"normalize": False}),
        ("/vllm/classify", {"normalize": False}),
        ("/vllm/v1/embeddings", {"messages": CHAT}),
    ],
)
def test_contradictions_are_refused(server: RunningServer, path: str, fields: Body) -> None:
    status, answer = send(server, path, {**EMBED, **fields})
    assert status in (400, 422), answer
    assert list(fields)[-1] in json.dumps(answer)


class TestConversations:
    def written(self, folder: Path, **values: Any) -> list[int]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        text = tokenizer.apply_chat_template(CHAT[:1], chat_template=TEMPLATE, tokenize=False, **values)
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @pytest.mark.parametrize(
        ("fields", "values"),
        [
            ({}, {}),
            ({"add_generation_prompt": True}, {"add_generation_prompt": True}),
            ({"chat_template_kwargs": {"mood": "light "}}, {"mood": "light "}),
        ],
    )
    @pytest.mark.parametrize("path", ["/pooling", "/vllm/pooling", "/classify", "/vllm/classify"])
    def test_outcome_rewards(
        self, server: RunningServer, folders: dict[str, Path], path: str, fields: Body, values: Body
    ) -> None:
        model = AutoModelForSequenceClassification.from_pretrained(folders["reward"]).eval()
        with torch.inference_mode():
            expected = model(torch.tensor([self.written(folders["reward"], **values)])).logits[0]
        for messages in (CHAT[:1], [CHAT[:1], CHAT[:1]]):
            body = {"model": "reward", "messages": messages, **fields}
            status, answer = send(server, path, body)
            assert status == 200, answer
            assert len(answer["data"]) == (2 if len(messages) == 2 else 1)
            for item in answer["data"]:
                assert_close(np.array(item.get("data", item.get("probs"))), expected, "raw")

    @pytest.mark.parametrize("path", ["/v1/embeddings", "/vllm/v1/embeddings"])
    def test_vectors(self, server: RunningServer, folders: dict[str, Path], path: str) -> None:
        ids = self.written(folders["chat"])
        model = AutoModel.from_pretrained(folders["chat"]).eval()
        with torch.inference_mode():
            raw = model(torch.tensor([ids])).last_hidden_state[0].double().numpy().mean(axis=0)
        body = {"model": "chat", "messages": CHAT[:1], "use_activation": False}
        _, answer = send(server, path, body)
        assert_close(np.array(answer["data"][0]["embedding"]), raw, "raw")

    @pytest.mark.parametrize("path", ["/vllm/pooling", "/vllm/v1/embeddings", "/v1/embeddings"])
    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"messages": []}, "messages"),
            ({"messages": "the cat"}, "messages"),
            ({"messages": [CHAT, [{"role": 3}]]}, "messages[1]"),
            ({"messages": CHAT, "input": "a"}, "messages"),
            ({"messages": CHAT, "add_generation_prompt": True, "continue_final_message": True}, "continue_final"),
            ({"messages": CHAT, "chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
            ({"messages": CHAT, "chat_template": "{{ 1 }}"}, "chat_template"),
            ({"input": "a", "add_generation_prompt": True}, "add_generation_prompt"),
            ({"input": "a", "chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        ],
    )
    def test_what_is_wrong_is_named(self, server: RunningServer, path: str, fields: Body, named: str) -> None:
        status, answer = send(server, path, {"model": "chat", **fields})
        assert status == 400, answer
        assert named in json.dumps(answer)

    @pytest.mark.parametrize("path", ["/vllm/pooling", "/vllm/classify", "/vllm/v1/embeddings"])
    def test_a_long_conversation_is_refused_or_cut(self, server: RunningServer, path: str) -> None:
        model = "chat" if path.endswith("embeddings") else "reward"
        body = {"model": model, "messages": [{"role": "a", "content": LONG}]}
        status, answer = send(server, path, body)
        assert status == 400
        assert "messages[0]" in json.dumps(answer)
        status, answer = send(server, path, {**body, "truncate_prompt_tokens": 9})
        assert (status, answer["usage"]["total_tokens"]) == (200, 9)

    def test_a_model_without_a_template_is_501(self, server: RunningServer) -> None:
        status, answer = send(server, "/vllm/pooling", {"model": "dense", "messages": CHAT})
        assert (status, answer["error"]["param"]) == (501, "messages")


class TestVllmEmbeddings:
    def test_the_answer_is_vllm_s(self, server: RunningServer) -> None:
        answer = server.http.post("/vllm/v1/embeddings", json={"model": "dense", "input": "the cat"}).json()
        assert answer["id"].startswith("embd-")
        assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
        assert answer["usage"]["completion_tokens"] == 0
        assert set(answer["data"][0]) == {"index", "object", "embedding"}

    def test_a_long_text_is_refused(self, server: RunningServer) -> None:
        status, answer = send(server, "/vllm/v1/embeddings", {"model": "dense", "input": ["a", LONG]})
        assert (status, answer["error"]["code"]) == (400, 400)
        assert "input[1]" in answer["error"]["message"]

    @pytest.mark.parametrize("path", ["/vllm/v1/embeddings", "/v1/embeddings"])
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    @pytest.mark.parametrize("order", ["little", "big"])
    def test_base64(self, server: RunningServer, path: str, dtype: str, order: str) -> None:
        plain = vectors(server, path)
        fields = {"encoding_format": "base64", "embed_dtype": dtype, "endianness": order}
        _, answer = send(server, path, {**BASES["/vllm/v1/embeddings"], **fields})
        kind = np.dtype(dtype).newbyteorder(order)  # type: ignore[call-overload]
        found = np.stack([np.frombuffer(base64.b64decode(each["embedding"]), kind) for each in answer["data"]])
        np.testing.assert_allclose(found.astype(np.float64), plain, atol=1e-3 if dtype == "float16" else 1e-6)

    def test_bytes(self, server: RunningServer) -> None:
        body = {**BASES["/vllm/v1/embeddings"], "encoding_format": "bytes", "endianness": "little"}
        answer = server.http.post("/vllm/v1/embeddings", json=body)
        places = json.loads(answer.headers["metadata"])["data"]
        rows = [np.frombuffer(answer.content[each["start"] : each["end"]], "<f4") for each in places]
        np.testing.assert_allclose(np.stack(rows), vectors(server, "/vllm/v1/embeddings"), atol=1e-6)

    def test_the_models_are_listed(self, server: RunningServer) -> None:
        models = {each["id"]: each for each in server.http.get("/vllm/v1/models").json()["data"]}
        assert models.keys() == server.engines.keys()
        assert models["dense"]["max_model_len"] == 64

    def test_cohere_s_route_has_no_limit_of_texts(self, server: RunningServer) -> None:
        status, answer = send(server, "/vllm/v2/embed", {"model": "dense", "texts": ["a"] * 97})
        assert (status, len(answer["texts"])) == (200, 97)


INTEGERS = [
    (path, field)
    for path in BASES
    for field in (
        "dimensions",
        "output_dimension",
        "top_n",
        "top_k",
        "max_tokens",
        "max_tokens_per_doc",
        "chunk_overlap",
    )
    if field in fields_of(path) and not marked(fields_of(path)[field], Refused)
]
TAKES_DIGITS = ("/vllm", "/jina", "/voyage", "/cohere")
"""APIs whose own servers read a string of digits as a number; serde and OpenAI's service do not."""


@pytest.mark.parametrize(("path", "field"), INTEGERS)
def test_whole_numbers_as_json_has_them(server: RunningServer, path: str, field: str) -> None:
    body, value = request_for(path, field)
    expected = send(server, path, {**body, field: value})
    assert expected[0] == 200, expected
    assert send(server, path, {**body, field: float(value)}) == expected
    status, answer = send(server, path, {**body, field: value + 0.5})
    assert status in (400, 422)
    assert field in json.dumps(answer)
    assert send(server, path, {**body, field: True})[0] in (400, 422)
    if path.startswith(TAKES_DIGITS):
        assert send(server, path, {**body, field: str(value)}) == expected
        assert send(server, path, {**body, field: "two"})[0] in (400, 422)


@pytest.mark.parametrize("path", ["/openai/v1/embeddings", "/tei/embed", "/encode/v1/encode"])
def test_digits_are_no_number_where_the_real_server_takes_none(server: RunningServer, path: str) -> None:
    status, answer = send(server, path, {**BASES[path], "dimensions": "16"})
    assert status in (400, 422)
    assert "dimensions" in json.dumps(answer)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/vllm/pooling", "/vllm/v1/embeddings"])
def test_token_ids_may_be_whole_floats(server: RunningServer, path: str) -> None:
    body = {"model": "dense"}
    for floats, ids in (([2.0, 5.0, 3.0], [2, 5, 3]), ([[2.0, 5.0], [7.0]], [[2, 5], [7]])):
        assert send(server, path, {**body, "input": floats}) == send(server, path, {**body, "input": ids})
    assert send(server, path, {**body, "input": [2.5]})[0] == 400

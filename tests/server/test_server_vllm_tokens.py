"""vLLM's /tokenize and /detokenize. Reference: the tokenizers of the same folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import RunningServer, run_server
from transformers import AutoTokenizer

from cenote.engine import AsyncEngine
from reranker_folders import PAIR_TEMPLATE, tiny_reranker
from tiny import tiny_checkpoint

MESSAGES = [{"role": "query", "content": "the cat"}, {"role": "document", "content": "a dog"}]
ANSWER = "{%- if add_generation_prompt -%}the water{%- endif -%}"
"""What the template adds where an answer is to follow."""
PREFIXES = pytest.mark.parametrize("prefix", ["", "/vllm"])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vllm_tokens")
    return {
        "chat": tiny_reranker(root / "chat", template=PAIR_TEMPLATE + ANSWER),
        "plain": tiny_checkpoint("bert", root / "plain", head="sequence_classification"),
    }


@pytest.fixture(scope="module")
def served(paths: dict[str, Path]) -> Iterator[RunningServer]:
    engines = {name: AsyncEngine(path, task="classify", threads=1) for name, path in paths.items()}
    with run_server(engines) as running:
        yield running
    for engine in engines.values():
        engine.close()


def ask(server: RunningServer, path: str, **body: Any) -> dict[str, Any]:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@PREFIXES
class TestTokenize:
    @pytest.mark.parametrize("special", [None, True, False])
    @pytest.mark.parametrize("text", ["the cat and a dog", "", "the cat " * 100])
    def test_a_text(
        self, served: RunningServer, paths: dict[str, Path], prefix: str, special: bool | None, text: str
    ) -> None:
        tokenizer = AutoTokenizer.from_pretrained(paths["plain"])
        ids = tokenizer(text, add_special_tokens=special is not False)["input_ids"]
        found = ask(served, f"{prefix}/tokenize", model="plain", prompt=text, add_special_tokens=special)
        assert found == {"count": len(ids), "max_model_len": 64, "tokens": ids, "token_strs": None}

    def test_strings(self, served: RunningServer, paths: dict[str, Path], prefix: str) -> None:
        tokenizer = AutoTokenizer.from_pretrained(paths["plain"])
        found = ask(served, f"{prefix}/tokenize", model="plain", prompt="the cat", return_token_strs=True)
        assert found["token_strs"] == tokenizer.convert_ids_to_tokens(found["tokens"])

    def test_messages(self, served: RunningServer, paths: dict[str, Path], prefix: str) -> None:
        tokenizer = AutoTokenizer.from_pretrained(paths["chat"])
        for options in ({}, {"add_generation_prompt": False}, {"continue_final_message": True}):
            continues = bool(options.get("continue_final_message"))
            generates = options.get("add_generation_prompt", not continues)
            text = tokenizer.apply_chat_template(
                MESSAGES, tokenize=False, add_generation_prompt=generates, continue_final_message=continues
            )
            for special in (False, True):
                expected = tokenizer(text, add_special_tokens=special)["input_ids"]
                body = {"model": "chat", "messages": MESSAGES, "add_special_tokens": special, **options}
                assert ask(served, f"{prefix}/tokenize", **body)["tokens"] == expected


@PREFIXES
def test_detokenize(served: RunningServer, paths: dict[str, Path], prefix: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(paths["plain"])
    ids = tokenizer("the cat and a dog")["input_ids"]
    found = ask(served, f"{prefix}/detokenize", model="plain", tokens=ids)
    assert found == {"prompt": tokenizer.decode(ids)}
    assert found["prompt"].startswith("[CLS]")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, 400, "prompt"),
        ("/tokenize", {"prompt": "a" * 1_000_001}, 413, None),
        ("/tokenize", {"messages": 3}, 400, "messages"),
        ("/tokenize", {"messages": ["a"]}, 400, "messages"),
        ("/tokenize", {"messages": [], "model": "chat"}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "query"}], "model": "chat"}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "query", "content": "a" * 1_000_001}], "model": "chat"}, 413, None),
        ("/tokenize", {"messages": MESSAGES}, 501, "messages"),
        (
            "/tokenize",
            {"messages": MESSAGES, "model": "chat", "add_generation_prompt": True, "continue_final_message": True},
            400,
            "continue_final_message",
        ),
        ("/tokenize", {"prompt": "a", "model": "nope"}, 404, "model"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": None}, 400, "tokens"),
        ("/detokenize", {"tokens": 5}, 400, "tokens"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
        ("/detokenize", {"tokens": []}, 400, "tokens"),
        ("/detokenize", {"tokens": [[5]]}, 400, "tokens"),
        ("/detokenize", {"tokens": [5, 200]}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, 400, "tokens"),
    ],
)
def test_what_is_wrong_is_named(
    served: RunningServer, path: str, body: dict[str, Any], status: int, param: str | None
) -> None:
    answer = served.http.post(f"/vllm{path}", json={"model": "plain", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, status, param), error

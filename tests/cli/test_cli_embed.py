"""`cenote embed`: every way in and out. Reference: sentence-transformers on the same folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from cenote import Engine
from cenote.cli import _texts, run
from conftest import Cenote
from tiny import HIDDEN_SIZE, tiny_checkpoint
from tolerances import assert_close

TEXTS = ["the cat", "a dog and a bird", "water on the stone"]
LONG_TEXT = "the cat and a dog " * 60


@pytest.fixture(scope="module")
def reference(model: Path) -> SentenceTransformer:
    return SentenceTransformer(str(model), device="cpu")


def bge_m3_checkpoint(folder: Path) -> Path:
    tiny_checkpoint("xlm-roberta", folder)
    torch.manual_seed(5)
    for name, width in (("sparse_linear", 1), ("colbert_linear", HIDDEN_SIZE)):
        torch.save(torch.nn.Linear(HIDDEN_SIZE, width).state_dict(), folder / f"{name}.pt")
    return folder


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_standard_input_to_npy(cenote: Cenote, model: Path, reference: SentenceTransformer, tmp_path: Path) -> None:
    output = tmp_path / "vectors.npy"
    done = cenote("embed", model, "--output", output, input="\n".join(TEXTS) + "\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    found = np.load(output)
    assert found.dtype == np.float32
    assert_close(found, reference.encode(TEXTS))
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.npy"]


def test_pipe_that_closes_is_no_traceback(environment: dict[str, str], model: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("the cat\n" * 3000)
    command = f"{sys.executable} -m cenote embed {model} --file {many} | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""


class TestInProcess:
    """The same code without a new process for each case."""

    def embed(self, model: Path, *arguments: object) -> int:
        return run(["embed", str(model), *map(str, arguments)])

    def test_arguments_to_json_lines_on_standard_output(
        self, model: Path, reference: SentenceTransformer, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        assert self.embed(model, *TEXTS) == 0
        found = lines(capsysbinary.readouterr().out.decode())
        assert [line["text"] for line in found] == TEXTS
        assert [line["index"] for line in found] == [0, 1, 2]
        assert [line["num_tokens"] for line in found] == [len(ids) for ids in reference.tokenizer(TEXTS)["input_ids"]]
        assert_close(np.asarray([line["embedding"] for line in found]), reference.encode(TEXTS))

    def test_json_lines_keep_their_fields(self, model: Path, reference: SentenceTransformer, tmp_path: Path) -> None:
        source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        source.write_text("".join(json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(TEXTS)))
        assert self.embed(model, "--file", source, "--output", output) == 0
        found = lines(output.read_text())
        assert [line["id"] for line in found] == ["d0", "d1", "d2"]
        assert_close(np.asarray([line["embedding"] for line in found]), reference.encode(TEXTS))

    @pytest.mark.parametrize(("input_type", "prompt"), [("query", "the cat: "), ("document", "a dog: ")])
    def test_input_type(
        self, model: Path, reference: SentenceTransformer, tmp_path: Path, input_type: str, prompt: str
    ) -> None:
        output = tmp_path / "out.npy"
        assert self.embed(model, *TEXTS, "--input-type", input_type, "--output", output) == 0
        assert_close(np.load(output), reference.encode(TEXTS, prompt=prompt))

    def test_dimensions(self, model: Path, reference: SentenceTransformer, tmp_path: Path) -> None:
        output = tmp_path / "out.npy"
        assert self.embed(model, *TEXTS, "--dimensions", 16, "--any-dimensions", "--output", output) == 0
        assert_close(np.load(output), reference.encode(TEXTS, truncate_dim=16, normalize_embeddings=True))

    def test_truncation_is_reported(self, model: Path, tmp_path: Path) -> None:
        output = tmp_path / "out.jsonl"
        assert self.embed(model, "the cat", LONG_TEXT, "--output", output) == 0
        assert [line["truncated"] for line in lines(output.read_text())] == [False, True]

    def test_no_truncate_names_the_line_and_leaves_nothing(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(_texts, "BATCH_ROWS", 4)
        source, output = tmp_path / "in.txt", tmp_path / "out.npy"
        source.write_text("the cat\n" * 9 + LONG_TEXT + "\n" + "a dog\n" * 9)
        assert self.embed(model, "--file", source, "--no-truncate", "--output", output) == 1
        assert "line 10 has" in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]

    def test_long_texts_in_blocks(self, model: Path, tmp_path: Path) -> None:
        output = tmp_path / "out.jsonl"
        options = ["--long-texts", "chunk", "--chunk-overlap", 7, "--output", output]
        assert self.embed(model, "the cat", LONG_TEXT, *options) == 0
        short, long = lines(output.read_text())
        assert (short["truncated"], long["truncated"]) == (False, False)
        with Engine(model) as engine:
            expected = engine.embed(["the cat", LONG_TEXT], long_texts="chunk", chunk_overlap=7)
        assert [short["num_tokens"], long["num_tokens"]] == expected.num_tokens
        assert_close(np.array([short["embedding"], long["embedding"]]), expected)

    def test_long_texts_may_be_an_error(self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.embed(model, "the cat", LONG_TEXT, "--long-texts", "error", "--output", tmp_path / "out.npy") == 1
        assert "text 2 has" in capsys.readouterr().err

    def test_several_outputs_from_one_pass(self, tmp_path: Path) -> None:
        folder = bge_m3_checkpoint(tmp_path / "m3")
        output = tmp_path / "out.jsonl"
        assert self.embed(folder, *TEXTS, "--outputs", "multi-vector,dense, sparse", "--output", output) == 0
        with Engine(folder) as engine:
            expected = engine.encode(TEXTS)
        for number, line in enumerate(lines(output.read_text())):
            assert_close(np.array(line["embedding"]), expected.dense[number])
            assert_close(np.array(line["multi_vector"]), expected.multi_vector[number])
            assert line["sparse"]["indices"] == expected.sparse[number].indices.tolist()
            assert_close(np.array(line["sparse"]["values"]), expected.sparse[number].values, "raw")

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (["--outputs", "dense,sparse"], "does not offer"),
            (["--outputs", "dense,nope"], "'nope'"),
            (["--outputs", "dense,sparse", "--output", "out.npy"], ".npy"),
            (["--long-texts", "truncate", "--no-truncate"], "truncate is off"),
            (["--chunk-overlap", "3"], "chunk_overlap"),
        ],
    )
    def test_options_that_cannot_be_met(
        self, model: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
    ) -> None:
        assert self.embed(model, "the cat", *options) == 1
        assert named in capsys.readouterr().err

    def test_many_batches_keep_the_order(
        self, model: Path, reference: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_texts, "BATCH_ROWS", 3)
        texts = [" ".join(TEXTS[: 1 + i % 3] * (1 + i % 2)) for i in range(20)]
        source, output = tmp_path / "in.txt", tmp_path / "out.npy"
        source.write_text("\n".join(texts))
        assert self.embed(model, "--file", source, "--output", output) == 0
        assert_close(np.load(output), reference.encode(texts))

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            (b'{"text": "a"}\n{"text": 3}\n', "line 2 must"),
            (b'{"text": "a"}\n[]\n', "line 2 must"),
            (b'{"text": "a"}\nnope\n', "line 2 is not valid JSON"),
            (b'{"text": "a"}\n\n', "line 2 is not valid JSON"),
        ],
    )
    def test_bad_json_line_is_named(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, named: str
    ) -> None:
        source = tmp_path / "in.jsonl"
        source.write_bytes(content)
        assert self.embed(model, "--file", source, "--output", tmp_path / "out.npy") == 1
        assert named in capsys.readouterr().err

    def test_line_that_is_no_utf8_is_named(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = tmp_path / "in.txt"
        source.write_bytes(b"fine\ncaf\xe9\n")
        assert self.embed(model, "--file", source, "--output", tmp_path / "out.npy") == 1
        assert "line 2 is not valid UTF-8" in capsys.readouterr().err

    def test_half_a_character_is_the_replacement_character(self, model: Path, tmp_path: Path) -> None:
        output = tmp_path / "out.npy"
        assert self.embed(model, "half \udcff", "half \N{REPLACEMENT CHARACTER}", "--output", output) == 0
        first, second = np.load(output)
        assert_close(first, second)
        assert self.embed(model, "half \udcff", "--output", tmp_path / "out.jsonl") == 0

    @pytest.mark.parametrize("name", ["out.npy", "out.jsonl"])
    def test_no_texts_is_an_empty_file(self, model: Path, tmp_path: Path, name: str) -> None:
        source, output = tmp_path / "in.txt", tmp_path / name
        source.write_bytes(b"")
        assert self.embed(model, "--file", source, "--output", output) == 0
        assert len(np.load(output) if name.endswith("npy") else output.read_bytes()) == 0

    def test_npy_needs_a_file(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.embed(model, "the cat", "--format", "npy") == 1
        assert "--output" in capsys.readouterr().err

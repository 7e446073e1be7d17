"""The comparison with other engines: contestants in processes of their own, with real weights."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bench_peers
import report
from bench_peers import compare_offline, matrix_multiply_tokens, num_texts
from cenote.bench import connection
from cenote.bench.corpora import CORPORA
from cenote.bench.load import Load, LoadResult, run_load
from fetch_models import ensure
from peers import contestants, online, tables
from peers.contestants import ContestantError, Worker, export_all, last_words


def options(**changes: object) -> argparse.Namespace:
    values = {"model": ensure("all-MiniLM-L6-v2"), "threads": 1, "texts": 12, "rounds": 2, "corpora": ["short"]}
    return argparse.Namespace(**{**values, "export_seconds": 60.0, "seconds": 1.0, "clients": [1], **changes})


@pytest.fixture(autouse=True)
def everybody_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All run in this environment; the peers' own are built by `make bench-peers`."""
    monkeypatch.setattr(contestants, "ROOT", tmp_path)
    for name in contestants.OFFLINE:
        monkeypatch.setitem(contestants.OFFLINE, name, None)


def test_contestants_give_the_same_vectors_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    left_out: dict[str, str] = {}
    corpora = dict(compare_offline(options(), ["cenote", "sentence-transformers"], left_out))
    assert not left_out
    rows = corpora["short"]["contestants"]
    assert len(rows["cenote"]["seconds"]) == len(rows["sentence-transformers"]["seconds"]) == 2
    assert rows["cenote"]["smallest_cosine"] >= 0.99999
    assert rows["cenote"]["tokens_per_second"] > 0
    limit = round(matrix_multiply_tokens(ensure("all-MiniLM-L6-v2"), 1))
    tables.print_offline({"corpora": corpora, "matrix_multiply_tokens_per_second": limit, "left_out": {}})
    assert "| cenote |" in capsys.readouterr().out


def test_a_run_that_is_ended_keeps_what_it_has_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    def figures() -> Iterator[tuple[str, dict[str, int]]]:
        yield "short", {"texts": 12}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_peers.record("offline", {"model": "m", "left_out": {}}, "corpora", figures())
    assert json.loads((tmp_path / "peers-offline-m.json").read_text())["corpora"] == {"short": {"texts": 12}}


def test_a_contestant_that_fails_is_named_with_the_reason_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """vLLM is not installed here; and without the reference there are no cosines."""
    left_out: dict[str, str] = {}
    corpora = dict(compare_offline(options(rounds=1), ["vllm", "cenote"], left_out))
    assert list(left_out) == ["vllm"]
    assert "exit code 1: ModuleNotFoundError: No module named 'vllm'" in left_out["vllm"]
    assert list(corpora["short"]["contestants"]) == ["cenote"]
    tables.print_offline({"corpora": corpora, "matrix_multiply_tokens_per_second": 1000, "left_out": left_out})
    printed = capsys.readouterr().out
    assert "| - | - |" in printed
    assert "left out: vllm: vllm ended" in printed


def test_an_export_that_fails_concerns_all_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "export.py"
    failing.write_text("raise ValueError('no such operation')")
    monkeypatch.setattr(contestants, "EXPORT", failing)
    monkeypatch.setattr(contestants, "install", lambda peer: Path(sys.executable))
    left_out = export_all(["cenote", "fastembed", "openvino int8"], options())
    reason = "the export of model.onnx ended with exit code 1: ValueError: no such operation"
    assert left_out == {"fastembed": reason, "openvino int8": reason}
    failing.write_text("import time; time.sleep(60)")
    left_out = export_all(["fastembed"], options(export_seconds=0.5))
    assert "more than" in left_out["fastembed"]


def test_the_first_error_of_a_log_is_quoted_with_its_indented_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for text, words in (
        (
            "INFO all\na.b.CError: 1 fault\n  in field x\nTraceback\nRuntimeError: see above\n",
            "a.b.CError: 1 fault in field x",
        ),
        ("one\ntwo\n", "two"),
        ("", "it said nothing"),
    ):
        log.write_text(text)
        assert last_words(log) == words


@pytest.mark.parametrize("corpus", list(CORPORA))
def test_every_corpus_has_about_as_many_tokens(corpus: str) -> None:
    """Of `texts` texts of the mixed corpus, of about 70 tokens each."""
    chosen = options(texts=100)
    num_tokens = bench_peers._num_tokens(chosen.model, bench_peers.make_texts(corpus, num_texts(corpus, chosen)))
    assert num_tokens == pytest.approx(7_000, rel=0.2)
    assert num_texts("mixed", chosen) == 100


def test_batches_are_measured_for_two_answers_to_each_client_within_a_limit() -> None:
    chosen = options(seconds=8.0)
    assert online._seconds(chosen, 1, 100.0) == 8.0
    assert online._seconds(chosen, 16, 100.0) == pytest.approx(10.24)
    assert online._seconds(chosen, 64, 0.0) == online.MEASURE_LIMIT_SECONDS


def test_a_measurement_without_an_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server takes connections and is silent."""
    monkeypatch.setattr(connection, "ANSWER_TIMEOUT_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        load = Load(host="127.0.0.1", port=silent.getsockname()[1], path="/", bodies=[b"{}"], seconds=0.6)
        figures = online._figures([run_load(load), run_load(load)], 1)
    assert (figures["answered"], figures["p50_ms"]) == (0, None)
    row = {"single": {"1": figures}, "batch": {}, "beside_bulk": figures, "ready_seconds": 1.0}
    tables.print_online({"servers": {"silent": row}, "left_out": {}})
    assert "single silent, 1 clients: nothing answered within 1 s" in capsys.readouterr().out


def test_of_several_rounds_the_median_is_given_with_each(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [
        LoadResult(seconds=2.0, latencies=[seconds] * number, answered=[0] * number)
        for number, seconds in ((40, 0.1), (20, 0.3), (60, 0.2))
    ]
    figures = online._figures(rounds, 32)
    assert (figures["requests_per_second"], figures["texts_per_second"]) == (20.0, 640.0)
    assert figures["rounds"] == [20.0, 10.0, 30.0]
    assert (figures["p50_ms"], figures["p99_ms"], figures["answered"], figures["seconds"]) == (200.0, 200.0, 120, 6.0)
    row = {"single": {"16": figures}, "batch": {}, "beside_bulk": figures, "ready_seconds": 1.0}
    tables.print_online({"servers": {"fast": row}, "left_out": {}})
    assert "single fast, 16 clients: 20.0 [10.0, 30.0] requests/s, p50 200.0 ms" in capsys.readouterr().out


def test_a_contestant_that_ends_is_named_with_its_log(tmp_path: Path) -> None:
    worker = Worker("cenote", options(model=tmp_path / "nowhere"))
    try:
        with pytest.raises(ContestantError, match=r"cenote ended with exit code 1: .*nowhere"):
            worker.wait_until_ready()
    finally:
        worker.close()


def test_the_share_of_the_matrix_multiplies_is_by_the_layers(tmp_path: Path) -> None:
    """Twice the layers allow half the tokens."""
    for name, layers in (("small", 2), ("large", 20)):
        (tmp_path / name).mkdir()
        config = f'{{"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": {layers}}}'
        (tmp_path / name / "config.json").write_text(config)
    small, large = (matrix_multiply_tokens(tmp_path / name, 1) for name in ("small", "large"))
    assert 3 < small / large < 30
    assert np.isfinite(large)

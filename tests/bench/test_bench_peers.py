"""The comparison with other engines: contestants in processes of their own, with real weights."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

import bench_peers
from bench_peers import Worker, compare_offline, matrix_multiply_tokens
from fetch_models import ensure
from peers import tables


def options(**changes: object) -> argparse.Namespace:
    values = {"model": ensure("all-MiniLM-L6-v2"), "threads": 1, "texts": 12, "rounds": 2, "corpora": ["short"]}
    return argparse.Namespace(**{**values, **changes})


def test_contestants_give_the_same_vectors_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both run in this environment; the peers' own are built by `make bench-peers`."""
    monkeypatch.setitem(bench_peers.OFFLINE, "sentence-transformers", None)
    monkeypatch.setattr(bench_peers, "ROOT", tmp_path)
    offline = compare_offline(options(), ["cenote", "sentence-transformers"])
    rows = offline["short"]["contestants"]
    assert len(rows["cenote"]["seconds"]) == len(rows["sentence-transformers"]["seconds"]) == 2
    assert rows["cenote"]["smallest_cosine"] >= 0.99999
    assert rows["cenote"]["tokens_per_second"] > 0
    limit = round(matrix_multiply_tokens(ensure("all-MiniLM-L6-v2"), 1))
    tables.print_tables({"offline": offline, "online": {}, "matrix_multiply_tokens_per_second": limit})
    assert "| cenote |" in capsys.readouterr().out


def test_a_contestant_that_ends_is_named_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_peers.OFFLINE, "cenote", None)
    (tmp_path / "exports").mkdir()
    worker = Worker("cenote", options(model=tmp_path / "nowhere"), tmp_path / "exports" / "none")
    try:
        with pytest.raises(SystemExit, match=r"cenote ended; its last words are in .*cenote\.log"):
            worker.wait_until_ready()
    finally:
        worker.close()
    assert "nowhere" in (tmp_path / "exports" / "cenote.log").read_text()


def test_the_share_of_the_matrix_multiplies_is_by_the_layers(tmp_path: Path) -> None:
    """Twice the layers allow half the tokens."""
    for name, layers in (("small", 2), ("large", 20)):
        (tmp_path / name).mkdir()
        config = f'{{"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": {layers}}}'
        (tmp_path / name / "config.json").write_text(config)
    small, large = (matrix_multiply_tokens(tmp_path / name, 1) for name in ("small", "large"))
    assert 3 < small / large < 30
    assert np.isfinite(large)

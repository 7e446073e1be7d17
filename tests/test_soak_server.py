"""`make soak` on a tiny model, for a few seconds: it finds nothing, and it would."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import httpx
import numpy as np
import pytest

import soak_server
from soak_clients import Soak
from tiny import add_sentence_transformers_files, tiny_checkpoint


def test_a_short_soak_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = add_sentence_transformers_files(tiny_checkpoint("bert", tmp_path / "tiny"), normalize=True)
    monkeypatch.setattr(os, "environ", {**os.environ, "OMP_NUM_THREADS": "1"})
    arguments = ["--model", str(folder), "--seconds", "10", "--texts", "200", "--limit", "500", "--threads", "1"]
    outcome, is_well = soak_server.soak_server(soak_server.parse_arguments(arguments))
    assert is_well, outcome
    counts = outcome["counts"]
    for kind in ("bulk", "query", "few"):
        assert counts[f"{kind} answered"] + counts.get(f"{kind} told to come back", 0) == counts[f"{kind} sent"] > 0
    assert counts["refused"] == counts["refused sent"] > 0
    assert counts["left before the answer"] > 0
    assert outcome["steps"] > 0


def test_a_wrong_vector_is_a_fault() -> None:
    expected = np.eye(4, dtype=np.float32)
    soak = Soak(process=None, http=None, texts=[], expected=expected)  # type: ignore[arg-type]
    body = {"data": [{"embedding": base64.b64encode(row.tobytes()).decode()} for row in expected[[0, 2]]]}
    soak.compare("few", httpx.Response(200, json=body), [0, 2])
    assert not soak.faults
    soak.compare("few", httpx.Response(200, json=body), [0, 1])
    soak.compare("few", httpx.Response(200, json=body), [0])
    assert len(soak.faults) == 2


def test_growth_is_that_of_the_settled_part() -> None:
    assert soak_server.grown_mib([0.0, *[100.0] * 9]) == 0.0
    assert soak_server.grown_mib([*[100.0] * 10, *[110.0] * 10, *[120.0] * 10]) == 20.0

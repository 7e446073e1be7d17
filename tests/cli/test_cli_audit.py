"""`cenote audit`: clean models pass, a pooler that waits fails with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cenote.cli import run
from conftest import Cenote

WAITING = '''
class MyPool:
    """Written for another engine."""

    def get_supported_tasks(self):
        return {"classify"}

    def __call__(self, hidden_states, pooling_metadata):
        cursor = pooling_metadata.get_pooling_cursor()
        return hidden_states[cursor.last_token_indices_gpu.tolist()]
'''
CLEAN = WAITING.replace("last_token_indices_gpu.tolist()", "last_token_indices_gpu")


def test_a_model_is_clean(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(model), "--dtype", "float16"]) == 0
    assert capsys.readouterr().out.startswith("tiny: 0 findings")


def test_a_model_as_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(model), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["clean"] is True
    assert report["findings"] == []
    assert any(step.startswith("float16, attention by varlen: ") for step in report["steps"])
    assert any(step.startswith("float32, attention by runs: ") for step in report["steps"])


def test_a_pooler_of_ones_own_fails_with_its_line(cenote: Cenote, tmp_path: Path) -> None:
    (tmp_path / "waiting_pool.py").write_text(WAITING)
    done = cenote("audit", "--pooler", "waiting_pool:MyPool", "--json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    line = WAITING.splitlines().index("        return hidden_states[cursor.last_token_indices_gpu.tolist()]") + 1
    assert {(Path(each["file"]).name, each["line"]) for each in findings} == {("waiting_pool.py", line)}
    assert {each["operation"] for each in findings} == {"Tensor.tolist", "Tensor.__getitem__"}
    assert "waiting_pool:MyPool" in done.stderr


def test_findings_are_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told_pool.py").write_text(WAITING)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["audit", "--pooler", "told_pool:MyPool"]) == 1
    told = capsys.readouterr().out
    assert "told_pool.py:10 in MyPool.__call__\n  copy_to_host: Tensor.tolist\n  why: " in told
    assert "  cure: " in told


def test_a_clean_pooler_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clean_pool.py").write_text(CLEAN)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["audit", "--pooler", "clean_pool:MyPool"]) == 0
    assert capsys.readouterr().out.startswith("clean_pool:MyPool: 0 findings")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a model"),
        (["folder", "--pooler", "a:b"], "name a model"),
        (["--pooler", "no_colon"], "does not name a pooler"),
        (["--pooler", "no_such_module:MyPool"], "cannot import"),
        (["--pooler", "json:no_such_name"], "cannot import"),
        (["--pooler", "json:__name__"], "neither a class nor a function"),
    ],
)
def test_what_cannot_be_audited_is_an_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *arguments]) == 1
    assert message in capsys.readouterr().err

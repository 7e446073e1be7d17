"""`cenote verify`: right numbers pass, and it says how close they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.cli import run


def test_right_numbers_pass(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(model)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tiny: 3 texts")
    assert "% of what is allowed" in printed


def test_wrong_numbers_fail(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from cenote.models.fused import FusedBackbone

    forward = FusedBackbone.forward

    def wrong(self: FusedBackbone, batch: object) -> torch.Tensor:
        return forward(self, batch) * 1.001  # type: ignore[arg-type]

    monkeypatch.setattr(FusedBackbone, "forward", wrong)
    assert run(["verify", str(model)]) == 1
    assert capsys.readouterr().err.startswith("cenote: error: ")

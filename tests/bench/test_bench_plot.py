"""Plots are pictures, and equal plots are equal files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.bench.plot import Panel, Plot, check_plot, write_plot
from cenote.errors import OptionError

PLOT = Plot(
    title="a model",
    x="clients",
    xs=[1, 16, 64],
    panels=(
        Panel(y="requests/s", lines={"answered": [10, 90, 95]}),
        Panel(y="ms", lines={"p50": [5, float("nan"), 30], "p99": [9, 20, 60]}),
    ),
    is_log=True,
)


def test_equal_plots_are_equal_files(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg", "one.png"):
        write_plot(tmp_path / name, PLOT)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").read_text().count('<g id="axes_') == 2
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_other_files_are_refused() -> None:
    with pytest.raises(OptionError, match=r"must end in \.svg or \.png"):
        check_plot(Path("it.pdf"))

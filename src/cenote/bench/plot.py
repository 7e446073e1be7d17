"""Plots of what was measured, as SVG or PNG; needs the extra `cenote[bench]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cenote.errors import MissingExtraError, OptionError

SUFFIXES = (".svg", ".png")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes: its lines by name, each with a value for every x of the plot (NaN for none)."""

    y: str
    lines: Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Panels side by side over the same x. `is_log` spaces the x by their ratios."""

    title: str
    x: str
    xs: Sequence[float]
    panels: Sequence[Panel]
    is_log: bool = False


def check_plot(path: Path) -> None:
    """Raise `OptionError` for a file that is no picture and `MissingExtraError` where plots cannot be drawn."""
    if path.suffix not in SUFFIXES:
        raise OptionError(f"the plot {str(path)!r} must end in {' or '.join(SUFFIXES)}")
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"plots need {error.name}: pip install 'cenote[bench]'") from None


def write_plot(path: Path, plot: Plot) -> None:
    """Draw `plot` into `path`. Equal plots give equal files."""
    check_plot(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "cenote"}):
        figure = Figure(figsize=(5.0 * len(plot.panels), 3.6), layout="constrained")
        figure.suptitle(plot.title)
        for axes, panel in zip(figure.subplots(1, len(plot.panels), squeeze=False)[0], plot.panels, strict=True):
            for name, values in panel.lines.items():
                axes.plot(plot.xs, values, marker="o", label=name)
            if plot.is_log:
                axes.set_xscale("log")
            axes.set(xlabel=plot.x, ylabel=panel.y)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)

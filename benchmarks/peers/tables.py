"""The comparison as tables for a terminal or a README, and as plots."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np


def print_offline(result: dict[str, Any]) -> None:
    """Print a Markdown table for each corpus."""
    limit = result["matrix_multiply_tokens_per_second"]
    for corpus, rows in result["corpora"].items():
        peers = [row for name, row in rows["contestants"].items() if _is_fp32_peer(name)]
        best = max(peers, key=lambda row: int(row["tokens_per_second"]), default=None)
        print(f"\n{corpus}: {rows['texts']} texts, {rows['tokens']:,} tokens\n")
        print("| | tokens/s | of the best fp32 peer | of the matrix multiplies | mean cosine | smallest cosine |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, row in rows["contestants"].items():
            speed = row["tokens_per_second"]
            share = "-" if best is None else _share(best["seconds"], row["seconds"])
            cosines = " | ".join(_cosine(row[key]) for key in ("mean_cosine", "smallest_cosine"))
            print(f"| {name} | {speed:,} | {share} | {speed / limit:.0%} | {cosines} |")
    _print_left_out(result)


def print_online(result: dict[str, Any]) -> None:
    """Print a line for each measurement."""
    for kind in ("single", "batch"):
        for name, row in result["servers"].items():
            for clients, figures in row[kind].items():
                print(f"{kind} {name}, {clients} clients: {_latencies(figures)}")
    for name, row in result["servers"].items():
        print(f"beside bulk {name}: {_latencies(row['beside_bulk'])}; ready after {row['ready_seconds']} s")
    _print_left_out(result)


def _print_left_out(result: dict[str, Any]) -> None:
    for name, reason in result["left_out"].items():
        print(f"left out: {name}: {reason}")


def _share(theirs: list[float], own: list[float]) -> str:
    """Return how many times as fast the second is: round by round the median, the smallest and the largest."""
    shares = [each / seconds for each, seconds in zip(theirs, own, strict=True)]
    return f"{statistics.median(shares):.2f} [{min(shares):.2f}, {max(shares):.2f}]"


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _latencies(figures: dict[str, Any]) -> str:
    failed = f", {figures['failed']} failed ({figures['first_failure']})" if figures["failed"] else ""
    if not figures["answered"]:
        return f"nothing answered within {figures['seconds']:.0f} s{failed}"
    speed, p50, p99 = (figures[key] for key in ("requests_per_second", "p50_ms", "p99_ms"))
    rounds = f" [{min(figures['rounds'])}, {max(figures['rounds'])}]" if len(figures["rounds"]) > 1 else ""
    times = f"p50 {p50} ms, p99 {p99} ms, {figures['answered']} in {figures['seconds']:.0f} s"
    return f"{speed}{rounds} requests/s, {times}{failed}"


def _is_fp32_peer(name: str) -> bool:
    return not name.startswith("cenote") and not name.endswith("int8")


def plot_offline(result: dict[str, Any], path: Path) -> None:
    """Draw the speeds, a panel for each corpus."""
    columns = len(result["corpora"])
    figure, axes = _subplots(columns, width=4 * columns, sharey=True)
    for axis, (corpus, rows) in zip(axes, result["corpora"].items(), strict=True):
        names = list(rows["contestants"])
        axis.barh(names, [rows["contestants"][name]["tokens_per_second"] for name in names])
        axis.set(title=corpus, xlabel="tokens/s")
        axis.invert_yaxis()
    _save(figure, path)


def plot_online(result: dict[str, Any], path: Path) -> None:
    """Draw throughput and latency of single texts against clients."""
    figure, axes = _subplots(3, width=12)
    for name, row in result["servers"].items():
        clients = [int(number) for number in row["single"]]
        for axis, key in zip(axes, ("requests_per_second", "p50_ms", "p99_ms"), strict=True):
            values = [figures[key] for figures in row["single"].values()]  # None: nothing was answered
            axis.plot(clients, np.array(values, dtype=float), marker="o", label=name)
            axis.set(xlabel="clients", title=key.replace("_", " "), ylim=(0, None))
    axes[0].legend()
    _save(figure, path)


def _subplots(columns: int, width: float, sharey: bool = False) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, columns, figsize=(width, 4), sharey=sharey, squeeze=False)
    return figure, axes[0]


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path)

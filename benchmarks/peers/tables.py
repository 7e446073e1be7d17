"""The comparison as tables for a terminal or a README, and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def print_tables(result: dict[str, Any]) -> None:
    """Print Markdown tables of what was measured."""
    limit = result["matrix_multiply_tokens_per_second"]
    for corpus, rows in result["offline"].items():
        peers = [row["tokens_per_second"] for name, row in rows["contestants"].items() if _is_fp32_peer(name)]
        print(f"\n{corpus}: {rows['texts']} texts, {rows['tokens']:,} tokens\n")
        print("| | tokens/s | of the best fp32 peer | of the matrix multiplies | mean cosine | smallest cosine |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, row in rows["contestants"].items():
            speed = row["tokens_per_second"]
            share = f"{speed / max(peers):.2f}" if peers else "-"
            cosines = " | ".join(_cosine(row[key]) for key in ("mean_cosine", "smallest_cosine"))
            print(f"| {name} | {speed:,} | {share} | {speed / limit:.0%} | {cosines} |")
    for kind in ("single", "batch"):
        for name, row in result["online"].items():
            for clients, figures in row[kind].items():
                print(f"{kind} {name}, {clients} clients: {_latencies(figures)}")
    for name, row in result["online"].items():
        print(f"beside bulk {name}: {_latencies(row['beside_bulk'])}; ready after {row['ready_seconds']} s")
    for where, reasons in result["left_out"].items():
        for name, reason in reasons.items():
            print(f"left out {where}: {name}: {reason}")


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _latencies(figures: dict[str, Any]) -> str:
    failed = f", {figures['failed']} failed ({figures['first_failure']})" if figures["failed"] else ""
    if not figures["answered"]:
        return f"nothing answered within {figures['seconds']:.0f} s{failed}"
    speed, p50, p99 = (figures[key] for key in ("requests_per_second", "p50_ms", "p99_ms"))
    return (
        f"{speed} requests/s, p50 {p50} ms, p99 {p99} ms, {figures['answered']} in {figures['seconds']:.0f} s{failed}"
    )


def _is_fp32_peer(name: str) -> bool:
    return not name.startswith("cenote") and not name.endswith("int8")


def plot(result: dict[str, Any], path: Path) -> None:
    """Draw throughput and latency against clients, and the offline speeds, beside the result file."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    if result["offline"]:
        columns = len(result["offline"])
        figure, axes = pyplot.subplots(1, columns, figsize=(4 * columns, 4), sharey=True, squeeze=False)
        for axis, (corpus, rows) in zip(axes[0], result["offline"].items(), strict=True):
            names = list(rows["contestants"])
            axis.barh(names, [rows["contestants"][name]["tokens_per_second"] for name in names])
            axis.set(title=corpus, xlabel="tokens/s")
            axis.invert_yaxis()
        figure.tight_layout()
        figure.savefig(path.with_suffix(".offline.svg"))
    if result["online"]:
        figure, axes = pyplot.subplots(1, 3, figsize=(12, 4))
        for name, row in result["online"].items():
            clients = [int(number) for number in row["single"]]
            for axis, key in zip(axes, ("requests_per_second", "p50_ms", "p99_ms"), strict=True):
                values = [figures[key] for figures in row["single"].values()]  # None: nothing was answered
                axis.plot(clients, np.array(values, dtype=float), marker="o", label=name)
                axis.set(xlabel="clients", title=key.replace("_", " "), ylim=(0, None))
        axes[0].legend()
        figure.tight_layout()
        figure.savefig(path.with_suffix(".online.svg"))

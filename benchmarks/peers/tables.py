"""The comparison as tables for a terminal or a README, and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def print_tables(result: dict[str, Any]) -> None:
    """Print Markdown tables of what was measured."""
    limit = result["matrix_multiply_tokens_per_second"]
    for corpus, rows in result["offline"].items():
        best = max(row["tokens_per_second"] for name, row in rows["contestants"].items() if _is_fp32_peer(name))
        print(f"\n{corpus}: {rows['texts']} texts, {rows['tokens']:,} tokens\n")
        print("| | tokens/s | of the best fp32 peer | of the matrix multiplies | mean cosine | smallest cosine |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, row in rows["contestants"].items():
            speed = row["tokens_per_second"]
            cosines = f"{row['mean_cosine']:.4f} | {row['smallest_cosine']:.4f}"
            print(f"| {name} | {speed:,} | {speed / best:.2f} | {speed / limit:.0%} | {cosines} |")
    for kind in ("single", "batch"):
        for name, row in result["online"].items():
            for clients, figures in row[kind].items():
                speed, p50, p99 = (figures[key] for key in ("requests_per_second", "p50_ms", "p99_ms"))
                print(f"{kind} {name}, {clients} clients: {speed} requests/s, p50 {p50} ms, p99 {p99} ms", end="")
                print(f", {figures['failed']} failed" if figures["failed"] else "")
    for name, row in result["online"].items():
        print(f"beside bulk {name}: p99 {row['beside_bulk']['p99_ms']} ms; ready after {row['ready_seconds']} s")


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
                axis.plot(clients, [figures[key] for figures in row["single"].values()], marker="o", label=name)
                axis.set(xlabel="clients", title=key.replace("_", " "), ylim=(0, None))
        axes[0].legend()
        figure.tight_layout()
        figure.savefig(path.with_suffix(".online.svg"))

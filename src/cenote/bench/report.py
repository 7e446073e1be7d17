"""What a benchmark found, under the names that `vllm bench serve` prints, so that figures can be laid side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cenote.bench.load import Load, LoadResult

_WIDTH = 40
_ONLINE = {
    "clients": "Clients",
    "request_rate": "Request rate (req/s)",
    "successful_requests": "Successful requests",
    "failed_requests": "Failed requests",
    "max_request_concurrency": "Maximum request concurrency",
    "duration_seconds": "Benchmark duration (s)",
    "total_input_tokens": "Total input tokens",
    "request_throughput": "Request throughput (req/s)",
    "input_throughput": "Input throughput (inputs/s)",
    "total_token_throughput": "Total token throughput (tok/s)",
    "mean_e2el_ms": "Mean E2EL (ms)",
    "median_e2el_ms": "Median E2EL (ms)",
    "p99_e2el_ms": "P99 E2EL (ms)",
    "generator_cpu_percent": "CPU of the generator (% of one core)",
    "first_failure": "First failure",
}
_OFFLINE = {
    "texts": "Texts",
    "tokens": "Tokens",
    "rounds": "Rounds",
    "tokens_per_second": "Total token throughput (tok/s)",
    "tokens_per_second_of_slowest_round": "  of the slowest round",
    "tokens_per_second_of_fastest_round": "  of the fastest round",
    "texts_per_second": "Input throughput (inputs/s)",
}


@dataclass(frozen=True, kw_only=True)
class OnlineResult:
    """One load and what came back. Each of its requests had `texts_per_request` texts."""

    load: Load
    result: LoadResult
    texts_per_request: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, for programs; `None` where there is none."""
        result, is_open = self.result, self.load.rate is not None
        return {
            "clients": None if is_open else self.load.num_clients,
            "request_rate": self.load.rate,
            "successful_requests": len(result.answered),
            "failed_requests": result.num_failed,
            "max_request_concurrency": result.max_in_flight,
            "duration_seconds": result.seconds,
            "total_input_tokens": result.num_tokens,
            "request_throughput": result.requests_per_second,
            "input_throughput": result.requests_per_second * self.texts_per_request,
            "total_token_throughput": None if result.num_tokens is None else result.num_tokens / result.seconds,
            "mean_e2el_ms": _milliseconds(result.mean()),
            "median_e2el_ms": _milliseconds(result.percentile(50)),
            "p99_e2el_ms": _milliseconds(result.percentile(99)),
            "generator_cpu_percent": 100 * result.cpu_seconds / result.seconds,
            "first_failure": result.first_failure,
        }

    def as_text(self) -> str:
        """Return the figures, one a line."""
        return _lines(self.as_dict(), _ONLINE)


def offline_text(figures: Mapping[str, Any]) -> str:
    """Return the figures of `OfflineResult.as_dict`, one a line."""
    return _lines(figures, _OFFLINE)


def _lines(figures: Mapping[str, Any], names: Mapping[str, str]) -> str:
    shown = [(name, figures[key]) for key, name in names.items() if figures[key] is not None]
    return "".join(f"{f'{name}:':<{_WIDTH}} {_written(value)}\n" for name, value in shown)


def _written(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _milliseconds(seconds: float) -> float | None:
    return None if seconds != seconds else 1000 * seconds

"""What the models have to do and have done, as metrics: read from the engines when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cenote.runtime.load import Distribution, Load
from cenote.server.served import ServedModels


class LoadCollector(Collector):
    """One series for each served model."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        """Return every metric, from one look at each model."""
        loads = {name: self._models.find(name)[1].load for name in self._models.names}
        return (
            _gauge("queued_requests", "Requests with texts that wait for a step.", loads),
            _gauge("queued_tokens", "Tokens that wait for a step.", loads),
            _gauge("unanswered_requests", "Requests that wait or run.", loads),
            _gauge("step_tokens", "Tokens that a full step has now.", loads),
            _steps(loads),
            _histogram("step_seconds", "Seconds from a step's start to its results.", loads),
            _histogram(
                "step_fill",
                "A step's tokens in parts of step_tokens; a longer text or many brief requests give over 1.",
                loads,
            ),
        )


def _gauge(name: str, help: str, loads: Mapping[str, Load]) -> Metric:  # noqa: A002
    family = GaugeMetricFamily(f"cenote_{name}", help, labels=["model"])
    for model, load in loads.items():
        family.add_metric([model], getattr(load, name))
    return family


def _steps(loads: Mapping[str, Load]) -> Metric:
    family = CounterMetricFamily("cenote_steps", "Steps run.", labels=["model"])
    for model, load in loads.items():
        family.add_metric([model], load.num_steps)
    return family


def _histogram(name: str, help: str, loads: Mapping[str, Load]) -> Metric:  # noqa: A002
    family = HistogramMetricFamily(f"cenote_{name}", help, labels=["model"])
    for model, load in loads.items():
        distribution: Distribution = getattr(load, name)
        family.add_metric([model], _buckets(distribution), distribution.total)
    return family


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """Return how many values were at most each bound, the last one without bound."""
    bounds = [*map(str, distribution.bounds), "+Inf"]
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(bounds, distribution.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets

"""What Prometheus may read. Every label is bounded: served models, known routes, the statuses that we send."""

from __future__ import annotations

import functools
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest

from cenote.server.load_metrics import LoadCollector
from cenote.server.record import Record
from cenote.server.served import ServedModels

_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class _Series(NamedTuple):
    """The counters of one model, route and status."""

    requests: Counter
    seconds: Histogram
    texts: Counter
    tokens: Counter
    truncated: Counter
    queue: Histogram
    inference: Histogram


class Metrics:
    """The counters of one server, and the loads of its models, in a registry of their own."""

    def __init__(self, models: ServedModels) -> None:
        self._registry = CollectorRegistry()
        # prometheus-client takes 60 us to find the children of a request's five metrics by their labels.
        self._series = functools.cache(self._find_series)
        ProcessCollector(registry=self._registry)
        self._registry.register(LoadCollector(models))
        labels = ("model", "route")
        self._requests = Counter("cenote_requests", "Requests answered.", (*labels, "status"), registry=self._registry)
        self._seconds = self._histogram("request", "from the first byte of a request to the last byte of its answer")
        self._queue = self._histogram("queue", "that a request waited for its first step")
        self._inference = self._histogram("inference", "from a request's first step to its results")
        self._texts = Counter("cenote_texts", "Texts computed.", labels, registry=self._registry)
        self._tokens = Counter("cenote_tokens", "Tokens read by the model.", labels, registry=self._registry)
        self._truncated = Counter("cenote_truncated_texts", "Texts cut to the limit.", labels, registry=self._registry)

    def observe(self, record: Record, seconds: float) -> None:
        """Count one finished request."""
        series = self._series(record.model, record.route, record.status)
        series.requests.inc()
        series.seconds.observe(seconds)
        if record.num_texts:
            series.texts.inc(record.num_texts)
            series.tokens.inc(record.num_tokens)
            series.truncated.inc(record.num_truncated)
            series.queue.observe(record.queue_seconds)
            series.inference.observe(record.inference_seconds)

    def _find_series(self, model: str, route: str, status: int) -> _Series:
        return _Series(
            requests=self._requests.labels(model, route, str(status)),
            seconds=self._seconds.labels(model, route),
            texts=self._texts.labels(model, route),
            tokens=self._tokens.labels(model, route),
            truncated=self._truncated.labels(model, route),
            queue=self._queue.labels(model, route),
            inference=self._inference.labels(model, route),
        )

    def _histogram(self, of: str, which: str) -> Histogram:
        name, labels = f"cenote_{of}_seconds", ("model", "route")
        return Histogram(name, f"Seconds {which}.", labels, buckets=_LATENCY_BUCKETS, registry=self._registry)

    def exposition(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        return generate_latest(self._registry)

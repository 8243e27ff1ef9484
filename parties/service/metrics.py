"""Prometheus metrics of the HTTP service: counts and durations, never an id."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0)
_RECORDS = (1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16384)
_DIFFERENCES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


class ServiceMetrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._answers = Counter(
            "opboost_http_requests", "Answered requests.", ("caller", "code"), registry=self._registry
        )
        self._seconds = Histogram(
            "opboost_http_request_seconds", "Time to the answer.", buckets=_SECONDS, registry=self._registry
        )
        self._records = Counter(
            "opboost_scored_records", "Records by what became of them.", ("model", "status"), registry=self._registry
        )
        self._batches = Histogram(
            "opboost_batch_records", "Records asked for at once.", ("model",), buckets=_RECORDS, registry=self._registry
        )
        self._ready = Gauge(
            "opboost_ready", "Whether all passive parties are there.", ("model",), registry=self._registry
        )
        self._differences = Histogram(
            "opboost_shadow_difference",
            "Absolute difference of the shadow's score.",
            ("model",),
            buckets=_DIFFERENCES,
            registry=self._registry,
        )
        self._shadow_failures = Counter(
            "opboost_shadow_failures", "Requests that the shadow did not score.", ("model",), registry=self._registry
        )

    def count_answer(self, caller: str, code: int, seconds: float) -> None:
        """Count an answered request; `caller` is a name from the file of tokens, or empty."""
        self._answers.labels(caller, str(code)).inc()
        self._seconds.observe(seconds)

    def count_records(self, model: str, statuses: Iterable[str]) -> None:
        """Count the records of an answer."""
        for status, n in Counts(statuses).items():
            self._records.labels(model, status).inc(n)

    def count_batch(self, model: str, n_records: int) -> None:
        """Count a micro-batch."""
        self._batches.labels(model).observe(n_records)

    def compare(self, model: str, differences: Iterable[float]) -> None:
        """Count the differences of a shadow's scores."""
        histogram = self._differences.labels(model)
        for difference in differences:
            histogram.observe(difference)

    def shadow_failed(self, model: str) -> None:
        """Count a request that the shadow did not score."""
        self._shadow_failures.labels(model).inc()

    def text(self, ready: dict[str, bool]) -> bytes:
        """Everything in Prometheus's text format; `ready` tells of each model whether it can score."""
        self._ready.clear()
        for model, is_ready in ready.items():
            self._ready.labels(model).set(is_ready)
        return generate_latest(self._registry)

"""Metrics of the service: counts and durations by name, in Prometheus's text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from parties.service.metrics import ServiceMetrics


def samples(metrics: ServiceMetrics, **ready: bool) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics.text(ready).decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_everything_is_counted_under_its_name() -> None:
    metrics = ServiceMetrics()
    metrics.count_answer("crm", 200, 0.003)
    metrics.count_answer("crm", 503, 0.3)
    metrics.count_records("spring", ["answered", "answered", "unknown"])
    metrics.count_batch("spring", 3)
    metrics.compare("summer", [0.0, 0.02])
    metrics.shadow_failed("summer")
    found = samples(metrics, spring=True)
    assert found["opboost_http_requests_total", "crm", "200"] == 1
    assert found["opboost_http_request_seconds_bucket", "0.004"] == 1
    assert found["opboost_http_request_seconds_count",] == 2
    assert found["opboost_scored_records_total", "spring", "answered"] == 2
    assert found["opboost_batch_records_bucket", "4.0", "spring"] == 1
    assert found["opboost_shadow_difference_bucket", "0.01", "summer"] == 1
    assert found["opboost_shadow_failures_total", "summer"] == 1


def test_a_model_that_is_gone_is_told_of_no_longer() -> None:
    metrics = ServiceMetrics()
    assert samples(metrics, spring=False)["opboost_ready", "spring"] == 0
    assert ("opboost_ready", "spring") not in samples(metrics, summer=True)

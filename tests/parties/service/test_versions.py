"""The model that answers and its shadow: what their differences tell."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.config.score_policy import RevealSection
from parties.service.metrics import ServiceMetrics
from parties.service.requests import ScoresBody
from parties.service.versions import Version, Versions
from parties.service.waiting_queries import ScoreQuery

BODY = ScoresBody.model_validate({"records": [{"id": "k1"}]})


def version(name: str, score: float, reveal: RevealSection) -> Any:
    """A model that gives every record the same score."""

    def submit(query: ScoreQuery) -> None:
        query.scored.set_result((np.full(len(query.ids), score), np.zeros(len(query.ids), np.uint8)))

    return SimpleNamespace(
        name=name,
        run=SimpleNamespace(reveal=reveal),
        scorer=SimpleNamespace(submit=submit),
        query=lambda records, explains, caller: (np.ones(1, np.bool_), ScoreQuery(("k1",), {})),
        rows=lambda query, scored, n_reasons: [{"status": "ok", "prediction": 0.0}],
    )


def metrics_after_a_request(answering: RevealSection, shadow: RevealSection) -> str:
    metrics = ServiceMetrics()
    pair = version("spring", 0.75, answering), version("summer", 0.5, shadow)
    versions = Versions(*pair, metrics=metrics, timeout_s=5)

    async def run() -> None:
        await versions.score(BODY, caller="scoring")
        await asyncio.gather(*versions._comparing)

    asyncio.run(run())
    return metrics.text({}).decode()


@pytest.mark.parametrize(
    ("answering", "shadow"), [(RevealSection(round=1), RevealSection()), (RevealSection(), RevealSection(bins=2))]
)
def test_under_a_score_policy_the_difference_of_exact_scores_is_nowhere(
    answering: RevealSection, shadow: RevealSection
) -> None:
    text = metrics_after_a_request(answering, shadow)
    assert "opboost_shadow_difference_sum{" not in text
    assert "opboost_shadow_failures_total{" not in text


def test_without_one_it_is_counted() -> None:
    """The same request tells the difference."""
    assert 'difference_sum{model="summer"} 0.25' in metrics_after_a_request(RevealSection(), RevealSection())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_query_has_the_columns_that_the_model_needs_whatever_else_a_schema_has(*, is_known: bool) -> None:
    """One of a schema with another column was scored together with one without it, which ended the scorer."""
    features = (SimpleNamespace(owner=None, name="x"), SimpleNamespace(owner="shop", name="other"))
    run, ensemble = SimpleNamespace(reveal=RevealSection()), SimpleNamespace(features=features)
    values, is_there = {"x": np.zeros(2), "other": np.ones(2)}, np.array([True, is_known])
    records = SimpleNamespace(of=lambda _: (["k1", "k2"], values, is_there))
    parts: dict[str, Any] = {"run": run, "model": SimpleNamespace(ensemble=ensemble), "records": records}
    _, query = Version(**parts, digest="", scorer=SimpleNamespace()).query([], explains=False, caller="scoring")  # type: ignore[arg-type]
    assert {name: len(found) for name, found in query.own.items()} == {"x": len(query.ids)}
    assert query.caller == "scoring"

"""Points of odds, and scorecards whose points add up to scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.credit.evidence import own_characteristic
from opboost.credit.scorecard import PointScale, Scorecard
from opboost.errors import ParameterError
from opboost.metrics import auc


def test_points_double_the_odds() -> None:
    scale = PointScale(points_to_double=20, points=600, odds=50)
    events = np.array([1 / 51, 1 / 101, 1 / 26, 0.5])
    np.testing.assert_allclose(scale.of_probabilities(events), [600, 620, 580, scale.offset])
    np.testing.assert_allclose(scale.probabilities(scale.of_probabilities(events)), events)


def test_points_of_bins_add_up_to_the_log_odds_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5000, 2))
    labels = (rng.random(5000) < 1 / (1 + np.exp(1 + 1.5 * table[:, 0] - table[:, 1]))).astype(np.float64)
    found = [own_characteristic(OwnColumn(f"f{i}", values), labels) for i, values in enumerate(table.T)]
    card = Scorecard.fit(found, labels)
    # Of a column alone the weights are a little flatter than beside another one.
    assert ((card.coefficients > 0.9) & (card.coefficients < 1.5)).all()
    matrix = np.column_stack([one.of_records for one in found])
    log_odds = matrix @ card.coefficients + card.intercept
    np.testing.assert_allclose(card.scores(), card.scale.offset + card.scale.factor * log_odds)
    probabilities = card.scale.probabilities(card.scores())
    assert probabilities.mean() == pytest.approx(labels.mean(), abs=1e-3)
    assert auc(labels, probabilities) > 0.75


@pytest.mark.parametrize("given", [{"points_to_double": 0.0}, {"odds": -1.0}, {"points": math.inf}], ids=str)
def test_a_scale_without_meaning_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match="points that double the odds"):
        PointScale(**given)


def test_a_scorecard_needs_a_column() -> None:
    with pytest.raises(ParameterError, match="needs a column"):
        Scorecard.fit([], np.array([0.0, 1.0]))

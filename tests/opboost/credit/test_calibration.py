"""Calibration, out of fold."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.credit.calibration import calibrations, platt
from opboost.errors import DataError


def test_overconfident_probabilities_are_brought_back() -> None:
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=6000)
    labels = (rng.random(6000) < 1 / (1 + np.exp(-log_odds))).astype(np.float64)
    confident = 1 / (1 + np.exp(-2 * log_odds - 1))
    slope, intercept = platt(confident, labels)
    assert slope == pytest.approx(0.5, abs=0.05)
    assert intercept == pytest.approx(-0.5, abs=0.1)
    raw, by_platt, by_steps = calibrations(confident, labels, seed=0)
    assert [one.method for one in (raw, by_platt, by_steps)] == ["as they are", "Platt", "isotonic"]
    assert max(by_platt.brier, by_steps.brier) < raw.brier - 0.01
    np.testing.assert_array_equal(raw.probabilities, confident)
    assert by_platt.probabilities.mean() == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("labels", [[0.0] * 4, [0.0, 1.0, 2.0, 0.0], [0.5, 1.0, 0.5, 1.0]])
def test_labels_that_are_no_events_are_refused(labels: list[float]) -> None:
    with pytest.raises(DataError, match="a scorecard needs labels 0 and 1"):
        platt(np.full(4, 0.5), np.array(labels))


def test_a_single_event_is_refused() -> None:
    with pytest.raises(DataError, match="calibration needs two records with label 1"):
        calibrations(np.full(4, 0.5), np.array([0.0, 0.0, 0.0, 1.0]), seed=0)


@pytest.mark.parametrize("seed", range(20))
def test_two_records_of_a_kind_are_enough(seed: int) -> None:
    labels = np.repeat([0.0, 1.0], [2 + seed, 2])
    for one in calibrations(np.linspace(0.1, 0.9, len(labels)), labels, seed=seed):
        assert np.isfinite(one.probabilities).all()

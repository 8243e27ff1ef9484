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


@pytest.mark.parametrize("n_events", [2, 3, 98])
def test_every_calibration_out_of_fold_has_seen_both_labels(n_events: int) -> None:
    labels = (np.arange(100) < n_events).astype(np.float64)
    for seed in range(5):
        for found in calibrations(np.linspace(0.1, 0.9, 100), labels, seed=seed):
            assert np.isfinite(found.probabilities).all()


def test_too_few_records_of_a_label_are_refused_in_a_sentence() -> None:
    p, labels = np.linspace(0.1, 0.9, 6), np.zeros(6)
    with pytest.raises(DataError, match="needs labels 0 and 1"):
        platt(p, labels)
    labels[0] = 1
    with pytest.raises(DataError, match="at least 2 records of each label; found 1"):
        calibrations(p, labels, seed=0)

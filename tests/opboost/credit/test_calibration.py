"""Calibration, out of fold."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.credit.calibration import calibrations, platt


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

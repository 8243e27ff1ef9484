"""Gradients of failure times far in the tails, against SciPy; their middle is in `losses/test_survival`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr

from opboost.trees.kernels.packing import grad_of, hess_of
from opboost.trees.kernels.survival import MAX_AFT, NORMAL, pack_failure_gradients

pytestmark = pytest.mark.usefixtures("one_thread")

# The grid's own step at this scale.
SCALE = 2.0**17
STEP = 1 / SCALE


def gradients(z: np.ndarray, upper: float, scale: float) -> list[np.ndarray]:
    """Of times of 1, or up to `upper`, at scores that put the noise at `z`."""
    out, ones = np.empty(len(z), np.int64), np.ones(len(z))
    bounds = np.zeros(len(z)), np.log(upper) * ones
    pack_failure_gradients(-scale * z, *bounds, ones, NORMAL, scale, SCALE, 2.0**13, False, out)
    fields = [(grad_of(one) / SCALE, hess_of(one) / 2.0**13) for one in out.tolist()]
    return [np.array(part) for part in zip(*fields, strict=True)]


def test_the_hazard_of_the_normal_distribution_is_right_in_both_tails() -> None:
    z = np.concatenate([np.linspace(-60, 60, 2401), [19.999, 20.001, -36.99, -37.01, 690.0]])
    grad, hess = gradients(z, np.inf, 20.0)
    hazard = np.exp(-(z**2) / 2 - log_ndtr(-z)) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(grad, -np.clip(hazard / 20, 0, MAX_AFT), atol=STEP)
    # SciPy's difference of large numbers has its own error beyond 20.
    near = np.abs(z) < 20
    np.testing.assert_allclose(hess[near], (hazard * (hazard - z) / 400)[near], atol=2.0**-13)
    np.testing.assert_allclose(hess[z > 20], 1 / 400, atol=2.0**-13)


@pytest.mark.parametrize("width", [1e-14, 0.1, 1e3])
def test_intervals_give_finite_gradients_within_the_bounds_wherever_they_lie(width: float) -> None:
    z = np.linspace(-690, 690, 277)
    for one in gradients(z, 1 + width, 0.5):
        assert np.isfinite(one).all()
        assert np.abs(one).max() <= MAX_AFT

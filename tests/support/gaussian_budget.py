"""Gaussian noise for a budget, found by bisection."""

from __future__ import annotations

import math

from scipy.optimize import brentq

from opboost.privacy.gaussian import gaussian_epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu, sensitivity over standard deviation, that is (epsilon, delta)-DP."""
    excess = lambda log_mu: gaussian_epsilon(math.exp(log_mu), delta) - epsilon  # noqa: E731
    return math.exp(brentq(excess, math.log(1e-5), math.log(900), xtol=1e-13))

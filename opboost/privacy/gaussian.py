"""The exact (epsilon, delta) of Gaussian noise: Balle and Wang (ICML 2018), theorem 8.

Everything depends on ``mu``, sensitivity over standard deviation. Releases compose to one of ``sqrt(sum of mu^2)``
without loss, also when each is chosen after seeing those before (Dong, Roth and Su, JRSS B 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfcx, log_ndtr

from opboost.errors import ParameterError, check_delta

# The difference of two Mills ratios loses digits when mu is small; no more than this share of the result is lost down
# to the least mu. Below it delta is taken there, above the largest mu it is 1.
_ROUND_UP = 1.0 + 1e-8
_LEAST_MU, _LARGEST_MU = 1e-6, 1e3


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least delta for which noise of this mu is (epsilon, delta)-DP, rounded up.

    ``Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)``, written with the normal density taken out
    of both terms, so that neither large nor small ones cancel or overflow.
    """
    if not (mu > 0 and epsilon >= 0):
        raise ParameterError(f"mu must be positive and epsilon not negative; got mu={mu}, epsilon={epsilon}")
    if mu > _LARGEST_MU:
        return 1.0
    mu = max(mu, _LEAST_MU)
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < -8:
        # The first term is 1 to all digits but its own tail, and nothing cancels.
        return min(1.0, -math.expm1(epsilon + float(log_ndtr(-far))) * _ROUND_UP)
    difference = float(erfcx(near / math.sqrt(2)) - erfcx(far / math.sqrt(2))) / 2
    return min(1.0, math.exp(-(near**2) / 2) * difference * _ROUND_UP)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon for which noise of this mu is (epsilon, delta)-DP, rounded up."""
    check_delta(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if mu > _LARGEST_MU:
        return math.inf
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return _bisect(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, low, high)


def _bisect(holds_at: Callable[[float], bool], low: float, high: float) -> float:
    """The least number at which a condition holds, from above, to some 50 bits; it holds at `high`."""
    while True:
        middle = math.sqrt(low * high) if low > 0 else high / 2
        if high - low <= 1e-14 * high or not low < middle < high:
            return high
        if holds_at(middle):
            high = middle
        elif low == 0 and middle < 1e-12:
            return high
        else:
            low = middle

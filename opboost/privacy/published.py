"""Published privacy accounting with its errors: for comparison only, never for a guarantee."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln

from opboost.errors import AccountError, ParameterError

# S-GBDT searches sigma^2 up to here.
LARGEST_VARIANCE = 1000.0

# Orders that S-GBDT tries.
_ORDERS = tuple(range(2, 201))


def zhu_wang(rate: float, cost: float, order: int) -> float:
    """S-GBDT's theorem 14: the divergence of a Poisson-sampled mechanism of divergence ``order * cost``, general form.

    Valid for the Gaussian mechanism but loose: the terms from the third on carry a factor of 3 that it does not need.
    """
    successes = np.arange(3, order + 1, dtype=np.float64)
    log_binomials = gammaln(order + 1) - gammaln(successes + 1) - gammaln(order - successes + 1)
    log_rest, log_rate = math.log1p(-rate) if rate < 1 else -1e6, math.log(rate)
    first = (order - 1) * log_rest + math.log(order * rate - rate + 1)
    second = math.log(order * (order - 1) / 2) + 2 * log_rate + (order - 2) * log_rest + 2 * cost
    others = math.log(3) + log_binomials + (order - successes) * log_rest + successes * log_rate
    others = others + (successes - 1) * successes * cost
    return float(np.logaddexp.reduce(np.concatenate([[first, second], others]))) / (order - 1)


@cache
def sgbdt_noise(*, epsilon: float, delta: float, n_trees: int, rate: float, cost: float) -> tuple[float, int]:
    """S-GBDT's algorithm 7: the least variance sigma^2, and its order, for a budget by its theorem 18.

    The theorem takes the divergence for its own moment: it solves ``exp(rho - order * epsilon) = delta`` where
    ``exp((order - 1) * (rho - epsilon)) = delta`` is right.

    Parameters
    ----------
    epsilon, delta : float
        What is claimed.
    n_trees : int
    rate : float
        Of the sampling.
    cost : float
        ``r_1 + r_2 g^2``: a leaf vector's divergence at order a is ``a * cost / sigma^2``.
    """
    if not (math.isfinite(epsilon) and epsilon > 0 and 0 < delta < 1):
        raise ParameterError(f"a budget needs epsilon > 0 and 0 < delta < 1; got ({epsilon}, {delta})")

    def claimed(log_variance: float) -> tuple[float, int]:
        scaled = cost / math.exp(log_variance)
        epsilons: NDArray[np.float64] = np.array(
            [(n_trees * zhu_wang(rate, scaled, order) - math.log(delta)) / order for order in _ORDERS]
        )
        best = int(np.argmin(epsilons))
        return float(epsilons[best]), _ORDERS[best]

    def excess(log_variance: float) -> float:
        return claimed(log_variance)[0] - epsilon

    highest = math.log(LARGEST_VARIANCE * max(cost, 1.0))
    if excess(highest) > 0:
        raise AccountError(f"algorithm 7 finds no variance up to {LARGEST_VARIANCE:g} for epsilon {epsilon:g}")
    log_variance = float(brentq(excess, -20.0, highest, xtol=1e-9)) if excess(-20.0) > 0 else -20.0
    return math.exp(log_variance), claimed(log_variance)[1]


def dpboost_gain_sensitivity(reg_lambda: float, max_grad: float) -> float:
    """DPBoost's slides: ``(3 l + 2) / ((l + 1) (l + 2)) g^2``, too small as soon as a child has two records."""
    return (3 * reg_lambda + 2) / ((reg_lambda + 1) * (reg_lambda + 2)) * max_grad**2

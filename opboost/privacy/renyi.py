"""Renyi divergences of releases at integer orders, and their conversion to (epsilon, delta).

Everything is rounded up. Orders are integers from 2: at the budgets of interest a finer choice gains less than one part
in a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from opboost.errors import AccountError, check_delta
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    Release,
    SampledGaussianRelease,
    SelectionRelease,
    SharedByCoins,
    SkellamRounds,
    check_order,
)

# Every integer up to 64, then steps of four per cent: between neighbours the resulting epsilon hardly changes.
ORDERS: tuple[int, ...] = (*range(2, 65), *(round(64 * 1.04**k) for k in range(1, 115)))

# Sums of a few thousand terms whose logs are off by some 1e-11 at most (log-gamma of a few thousand).
_ROUND_UP = 1.0 + 1e-10
_ROUNDING = 4e-15

Curve = NDArray[np.float64]


def divergence(release: Release, orders: tuple[int, ...]) -> Curve:
    """Upper bounds on the Renyi divergence of a release at each order, shape ``(n_orders,)``.

    Raises
    ------
    AccountError
        For a kind of release that is not known here, or not at these orders.
    """
    alpha = np.array([check_order(order) for order in orders], dtype=np.float64)
    match release:
        case PureRelease(epsilon=epsilon):
            once = pure_divergence(epsilon, alpha)
        case SelectionRelease(epsilon=epsilon):
            # Bounded range: Cesar and Rogers (ALT 2021), lemma 3.4.
            once = np.minimum(pure_divergence(epsilon, alpha), alpha * epsilon**2 / 8)
        case LaplaceRelease(l1=l1, scale=scale):
            once = _laplace_divergence(l1, scale, alpha)
        case GaussianRelease(mu=mu):
            once = alpha * mu**2 / 2
        case SampledGaussianRelease(rate=rate, mu=mu):
            once = sampled_gaussian(rate, mu, orders)
        case SkellamRounds(mu=mu, largest=largest, variances=variances, n_rounds=n_rounds):
            # Divergences of independent coordinates add up: the records' own, and small terms for the largest record.
            terms = [_beyond_gaussian(steps, v, alpha) for steps, v in zip(largest, variances, strict=True)]
            once = alpha * mu**2 / 2 + n_rounds * np.sum(terms, axis=0)
        case FilteredRelease(order=order, rho=rho):
            once = np.where(alpha == order, rho, np.inf)
        case SharedByCoins(parts=parts):
            once = np.max(
                [np.sum([divergence(each, orders) for each in part], axis=0) for part in parts if part], axis=0
            )
        case _:
            raise AccountError(f"no Renyi account of a release of kind {type(release).__name__}; nothing was released")
    return once * release.count * _ROUND_UP + release.count * _ROUNDING


def sampled_gaussian(rate: float, mu: float, orders: tuple[int, ...]) -> Curve:
    """Divergence of the Gaussian mechanism on records that take part with probability `rate`, at each order.

    Mironov, Talwar and Zhang (2019), the exact value at integer orders: for ``c = mu^2 / 2``,
    ``log(sum over l of binomial(a, l) (1 - rate)^(a - l) rate^l exp(l (l - 1) c)) / (a - 1)``. The binomial weights sum
    to 1, so the terms are taken less 1 and small divergences keep their digits.
    """
    if rate == 1:
        return np.array(orders, dtype=np.float64) * mu**2 / 2
    log_binomials, successes, begins = _binomials(orders)
    failures = np.repeat(np.array(orders), np.diff([*begins, len(successes)])) - successes
    logs = log_binomials + failures * math.log1p(-rate) + successes * math.log(rate)
    logs = logs + _log_expm1(successes * (successes - 1.0) * (mu**2 / 2))
    peaks = np.maximum.reduceat(logs, begins)
    sums = np.add.reduceat(np.exp(logs - np.repeat(peaks, np.diff([*begins, len(successes)]))), begins)
    return np.logaddexp(0.0, peaks + np.log(sums)) / (np.array(orders) - 1.0)


class ChargeTable:
    """Charge of a record per round of a sampled Gaussian query, by the size of its contribution; rounded up.

    Parameters
    ----------
    rate : float
    order : int
    largest_mu_squared : float
        Of any record: ``sum over coordinates of (contribution / deviation)^2``.

    Notes
    -----
    At a fixed order the divergence is a convex function of ``mu^2`` (the log of a sum of exponentials of linear ones),
    so a chord between two table entries is above it.
    """

    N_ENTRIES = 512

    def __init__(self, rate: float, *, order: int, largest_mu_squared: float) -> None:
        release = SampledGaussianRelease(rate=rate, mu=math.sqrt(largest_mu_squared))
        self.order = check_order(order)
        self.largest_mu_squared = largest_mu_squared
        self._grid = np.linspace(0.0, 1.0, self.N_ENTRIES + 1) ** 2 * largest_mu_squared
        charges = [sampled_gaussian(release.rate, math.sqrt(mu_squared), (order,))[0] for mu_squared in self._grid[1:]]
        self._charges = np.array([0.0, *charges]) * _ROUND_UP + _ROUNDING

    def charges(self, mu_squared: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each record's charge for one round, same shape.

        Raises
        ------
        AccountError
            If a record exceeds the largest size the table was made for, or is not a number. Nothing was charged then.
        """
        mu_squared = np.asarray(mu_squared, dtype=np.float64)
        if not ((mu_squared >= 0) & (mu_squared <= self.largest_mu_squared * (1 + 1e-12))).all():
            raise AccountError("a record's contribution is beyond the bound it was clipped to; nothing was charged")
        return np.interp(mu_squared, self._grid, self._charges) * (1 + 1e-14)


def renyi_epsilon(orders: Sequence[int] | Curve, rho: Curve, delta: float) -> tuple[float, float]:
    """The best epsilon that these divergences give at `delta`, and its order.

    Canonne, Kamath and Steinke (NeurIPS 2020), proposition 12: ``rho + log((a - 1) / a) - log(a delta) / (a - 1)``.
    """
    check_delta(delta)
    alpha = np.array(orders, dtype=np.float64)
    epsilons = np.asarray(rho) + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])) * (1 + 1e-14), float(alpha[best])


def pure_divergence(epsilon: float, alpha: Curve) -> Curve:
    """Divergence of randomised response, which every `epsilon`-DP mechanism is post-processing of.

    Kairouz, Oh and Viswanath (ICML 2015). The bound ``alpha epsilon^2 / 2`` is above it and takes over where the
    difference of almost equal numbers would not be accurate.
    """
    log_odds = math.log1p(math.exp(-epsilon))
    logs = np.logaddexp((alpha - 1) * epsilon - log_odds, -alpha * epsilon - log_odds)
    return np.minimum(np.minimum(np.maximum(logs / (alpha - 1), 0.0), epsilon), alpha * epsilon**2 / 2)


def _laplace_divergence(l1: int, scale: float, alpha: Curve) -> Curve:
    """Exact divergence of discrete Laplace noise, summed over the three ranges of outputs.

    A convex function of the shift that is 0 at 0, so that a vector's shift costs most when it is all in one coordinate.
    On a fine grid it is the continuous law's: ``alpha / (2 alpha - 1) exp((alpha - 1) epsilon) + ...``.
    """
    a = 1.0 / scale
    log_norm = math.log1p(math.exp(-a))
    beyond = -np.expm1(-(2 * alpha - 1) * a)
    fall = np.log(1.0 + -math.expm1(-a) * np.exp(-(2 * alpha - 1) * a) / beyond) - log_norm
    rise = -a + np.log(-np.expm1(-(2 * alpha - 2) * a) / beyond) - log_norm
    logs = np.logaddexp(fall + (alpha - 1) * a * l1, rise - alpha * a * l1)
    return np.minimum(np.maximum(logs / (alpha - 1), 0.0), a * l1)


def _beyond_gaussian(steps: int, variance: float, alpha: Curve) -> Curve:
    """Excess of the bound for Skellam noise over the divergence of Gaussian noise of its variance, for one coordinate.

    Agarwal, Kairouz and Liu (NeurIPS 2021), theorem 3.5.
    """
    fine = ((2 * alpha - 1) * steps**2 + 6 * steps) / (4 * variance**2)
    return np.minimum(fine, 3 * steps / (2 * variance))


@cache
def _binomials(orders: tuple[int, ...]) -> tuple[Curve, Curve, NDArray[np.int64]]:
    """For each order the terms l = 2 .. order: log binomials, the l's, and where each order's terms begin."""
    successes = np.concatenate([np.arange(2, order + 1, dtype=np.float64) for order in orders])
    lengths = np.array([order - 1 for order in orders])
    alpha = np.repeat(np.array(orders, dtype=np.float64), lengths)
    logs = gammaln(alpha + 1) - gammaln(successes + 1) - gammaln(alpha - successes + 1)
    return logs, successes, np.concatenate([[0], np.cumsum(lengths)[:-1]])


def _log_expm1(x: Curve) -> Curve:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))

"""Privacy accounting: the epsilon of a list of releases at a delta, and calibration of noise to a budget.

=========================  =================================  ==================================================
account                    knows                              composition
=========================  =================================  ==================================================
`by_pure`                  pure kinds                         sum of epsilons
`by_gaussian`              pure kinds, Gaussian, Skellam      exact for the Gaussian, plus the sum of epsilons
`by_renyi`                 all                                sum of divergences at integer orders
`by_renyi_replaced`        all                                the same, for a record that is replaced by another
`by_skellam`               what both of these know            the smaller one of both
`by_loss_distribution`     pure kinds, Gaussian, sampled      convolution, by the `dp_accounting` package
=========================  =================================  ==================================================

Each is a function of releases and delta that returns an epsilon, rounded up, and refuses what it does not know. All are
valid when each release is chosen after seeing those before, as long as the list itself does not depend on data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from opboost.errors import AccountError, check_delta, check_positive
from opboost.privacy.gaussian import gaussian_epsilon
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
)
from opboost.privacy.renyi import ORDERS, Curve, divergence, renyi_epsilon
from opboost.privacy.skellam import distance_to_gaussian

Accountant = Callable[[Sequence[Release], float], float]

# Width of the loss distribution's cells: composed over a thousand releases, epsilon is off by less than a per mille.
_CELL = 1e-4

# Noise multipliers are searched between exp(-28) and exp(28).
_FARTHEST = 28.0


def by_pure(releases: Sequence[Release], delta: float = 0.0) -> float:
    """Basic composition: sum of the epsilons of pure releases; the maximum over parts dealt by coins."""
    _check_list(releases)
    return _at_least_sum(_pure_epsilon(release) * release.count for release in releases)


def by_gaussian(releases: Sequence[Release], delta: float) -> float:
    """Exact composition of Gaussian releases (Balle and Wang), plus the epsilons of the pure ones.

    Skellam noise counts as Gaussian noise, and its distance from that is taken off delta (`opboost.privacy.skellam`).
    """
    _check_list(releases)
    skellam = [release for release in releases if isinstance(release, SkellamRounds)]
    gaussian = [release for release in releases if _is_gaussian(release)]
    rest = [release for release in releases if release not in gaussian and release not in skellam]
    pure = by_pure(rest) if rest else 0.0
    gaussian += [GaussianRelease(mu=release.mu, count=release.count) for release in skellam]
    distance = _at_least_sum(
        release.count * release.n_rounds * distance_to_gaussian(variance)
        for release in skellam
        for variance in release.variances
    )
    return pure + _gaussian_epsilon_beside(pure, total_mu(gaussian), delta, distance) if gaussian else pure


def _gaussian_epsilon_beside(pure: float, mu: float, delta: float, distance: float) -> float:
    """Epsilon of noise within a total variation distance of Gaussian noise; infinite if nothing of delta is left."""
    epsilon = gaussian_epsilon(mu, delta)
    if not distance:
        return epsilon
    while pure + epsilon < 700:
        left = delta - (1 + math.exp(pure + epsilon)) * distance
        if left <= 0:
            break
        needed = gaussian_epsilon(mu, left)
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + 1e-9)
    return math.inf


def by_renyi(releases: Sequence[Release], delta: float) -> float:
    """Renyi composition at integer orders; see `renyi_account` for the order that decides."""
    return renyi_account(releases, delta)[0]


def by_renyi_replaced(releases: Sequence[Release], delta: float) -> float:
    """Epsilon between data sets of one size that differ in one record's values.

    Such a pair is two steps of a record removed and added. Mironov (CSF 2017), proposition 11, with ``p = 2 - 1 / a``:
    a divergence rho at order a of each step is ``rho (2 a - 1) / (a - 1)`` of both at order ``a^2 / (2 a - 1)``.
    """
    orders = _orders_of(releases)
    a = np.array(orders, dtype=np.float64)
    both = renyi_curve(releases, orders) * (2 * a - 1) / (a - 1)
    return renyi_epsilon(a**2 / (2 * a - 1), both, delta)[0]


def by_skellam(releases: Sequence[Release], delta: float) -> float:
    """The smaller of `by_gaussian` and `by_renyi`: of Skellam noise the former, but for epsilons of some 8 and more."""
    return min(by_gaussian(releases, delta), by_renyi(releases, delta))


def renyi_account(releases: Sequence[Release], delta: float) -> tuple[float, int]:
    """Epsilon at delta, and the order that gives it.

    After a filter, that is the filter's order: the others do not count.
    """
    orders = _orders_of(releases)
    epsilon, order = renyi_epsilon(orders, renyi_curve(releases, orders), delta)
    return epsilon, int(order)


def renyi_curve(releases: Sequence[Release], orders: tuple[int, ...] = ORDERS) -> Curve:
    """Sum of the divergences at each order, shape ``(n_orders,)``."""
    _check_list(releases)
    return np.sum([divergence(release, orders) for release in releases], axis=0)


def total_mu(releases: Sequence[Release]) -> float:
    """The mu of one Gaussian release that all these Gaussian ones together are equal to, rounded up."""
    _check_list(releases)
    return math.sqrt(math.fsum(release.count * _mu(release) ** 2 for release in releases)) * (1 + 1e-15)


def by_loss_distribution(releases: Sequence[Release], delta: float) -> float:
    """Numerical composition of privacy losses, pessimistic in every rounding (`dp_accounting`).

    Gaussian releases are composed exactly first; pure ones enter as randomised response, which dominates them.
    """
    return loss_distribution_profile(releases, (delta,))[0]


def loss_distribution_profile(releases: Sequence[Release], deltas: Sequence[float]) -> tuple[float, ...]:
    """Epsilons at several deltas from one numerical composition, which is most of the work."""
    _check_list(releases)
    for delta in deltas:
        check_delta(delta)
    found = _loss_distribution(tuple(releases))
    return tuple(float(found.get_epsilon_for_delta(delta)) for delta in deltas)


def calibrate(
    plan: Callable[[float], Sequence[Release]],
    *,
    epsilon: float,
    delta: float,
    account: Accountant,
    guess: float = 1.0,
    tolerance: float = 1e-6,
) -> float:
    """Calibrate the least noise whose releases fit a budget.

    Parameters
    ----------
    plan : callable
        The releases that will be made for a noise multiplier; more noise must not cost more.
    epsilon, delta : float
        The budget.
    account : callable
        One of the accounts of this module.
    guess : float
        Where to begin; a near one saves evaluations of a slow account.
    tolerance : float
        Relative; the multiplier returned is above the least one by at most this.

    Returns
    -------
    float
        A multiplier for which ``account(plan(multiplier), delta) <= epsilon``, evaluated at this very number.

    Raises
    ------
    AccountError
        If no multiplier up to exp(28) fits.
    """
    check_positive("the epsilon of a budget", epsilon, outcome=". Nothing was released")

    def excess(log_multiplier: float) -> float:
        spent = account(plan(math.exp(log_multiplier)), delta)
        if math.isnan(spent):
            raise AccountError("the account of a plan is not a number; nothing was released")
        return math.log(min(max(spent, 1e-300), 1e300) / epsilon)

    low = high = math.log(guess)
    stride = 0.125
    while excess(high) > 0:
        low, high, stride = high, high + stride, 2 * stride
        if high > _FARTHEST:
            raise AccountError(f"no noise in reach fits the budget ({epsilon}, {delta}); nothing was released")
    while low == high or excess(low) <= 0:
        high, low, stride = low, low - stride, 2 * stride
        if low < -_FARTHEST:
            return math.exp(high)
    multiplier = math.exp(float(brentq(excess, low, high, xtol=tolerance / 4, rtol=1e-15)))
    while not account(plan(multiplier), delta) <= epsilon:
        multiplier = min(multiplier * (1 + tolerance / 4), math.exp(high))
    return multiplier


def _pure_epsilon(release: Release) -> float:
    match release:
        case PureRelease() | SelectionRelease() | LaplaceRelease():
            return release.epsilon
        case SharedByCoins(parts=parts):
            return max(by_pure(part) if part else 0.0 for part in parts)
        case _:
            raise AccountError(f"a {type(release).__name__} is not pure; nothing was released")


def _is_gaussian(release: Release) -> bool:
    match release:
        case GaussianRelease():
            return True
        case SharedByCoins(parts=parts):
            return all(_is_gaussian(each) for part in parts for each in part) and any(parts)
        case _:
            return False


def _mu(release: Release) -> float:
    match release:
        case GaussianRelease(mu=mu):
            return mu
        case SharedByCoins(parts=parts):
            return max(total_mu(part) if part else 0.0 for part in parts)
        case _:
            raise AccountError(f"a {type(release).__name__} has no exact Gaussian account; nothing was released")


# A calibration ends with the releases that a guarantee and a report ask about; each composition takes half a second.
@lru_cache(maxsize=16)
def _loss_distribution(releases: tuple[Release, ...]) -> Any:
    # Takes most of a second to import, and only some accounts need it.
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    def once(release: Release) -> Any:
        match release:
            case SampledGaussianRelease(rate=rate, mu=mu):
                return pld.from_gaussian_mechanism(1.0, mu, sampling_prob=rate, value_discretization_interval=_CELL)
            case PureRelease() | SelectionRelease() | LaplaceRelease():
                return pld.from_privacy_parameters(DifferentialPrivacyParameters(release.epsilon), _CELL)
            case _:
                raise AccountError(f"no loss distribution of a {type(release).__name__}; nothing was released")

    gaussian = [release for release in releases if _is_gaussian(release)]
    rest = [release for release in releases if not _is_gaussian(release)]
    total = None
    if gaussian:
        total = pld.from_gaussian_mechanism(1.0, total_mu(gaussian), value_discretization_interval=_CELL)
    for release in rest:
        composed = once(release).self_compose(int(release.count))
        total = composed if total is None else total.compose(composed)
    return total


def _orders_of(releases: Iterable[Release]) -> tuple[int, ...]:
    """Integer orders, those of filters among them."""
    return tuple(sorted({*ORDERS, *(each.order for each in releases if isinstance(each, FilteredRelease))}))


def _check_list(releases: Sequence[Release]) -> None:
    if len(releases) == 0:
        raise AccountError("an account needs at least one release; an empty list is refused")


def _at_least_sum(values: Iterable[float]) -> float:
    """A sum that is not below the exact one: `fsum` rounds once, and so did each product."""
    return math.fsum(values) * (1 + 5e-16)

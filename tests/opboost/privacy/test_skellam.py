"""Skellam noise counts as Gaussian noise: the distance between the two, and the account that rests on it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ive, ndtr

from opboost.errors import AccountError
from opboost.privacy.accounting import by_gaussian, by_loss_distribution, by_renyi
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.releases import GaussianRelease, PureRelease, SkellamRounds
from opboost.privacy.skellam import distance_to_gaussian


def probabilities(variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Of Skellam noise, and of rounded Gaussian noise, within 14 deviations."""
    std = math.sqrt(variance)
    # Both are symmetric; below 0 no difference of numbers near 1 is taken.
    z = -np.arange(int(14 * std) + 1.0)
    return ive(-z, variance), ndtr((z + 0.5) / std) - ndtr((z - 0.5) / std)


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Total variation of symmetric laws, given from 0 on."""
    gaps = np.abs(first - second)
    return float(gaps[0] / 2 + gaps[1:].sum())


@pytest.mark.parametrize("exponent", [16, 18, 20, 24])
def test_the_distance_to_gaussian_noise_is_below_the_bound(exponent: int) -> None:
    found = distance(*probabilities(2.0**exponent))
    assert 0.03 / 2**exponent < found < distance_to_gaussian(2.0**exponent)


def test_noise_of_another_variance_is_farther_away() -> None:
    """The twin: the distance is small because the variances are the same."""
    skellam, _ = probabilities(2.0**18)
    _, other = probabilities(2.0**18 * 1.001)
    size = min(len(skellam), len(other))
    assert distance(skellam[:size], other[:size]) > 10 * distance_to_gaussian(2.0**18)


def test_the_bound_says_nothing_where_it_was_not_proven() -> None:
    assert distance_to_gaussian(2.0**15) == distance_to_gaussian(2.0**63) == 1.0
    assert by_gaussian([rounds(1, 100.0, 1)], 1e-6) == math.inf


def rounds(shift: int, variance: float, n_rounds: int) -> SkellamRounds:
    mu = shift / math.sqrt(variance) * math.sqrt(n_rounds)
    return SkellamRounds(mu=mu, largest=(shift,), variances=(variance,), n_rounds=n_rounds)


def enumerated(shift: int, variance: float, count: int, delta: float, *, is_pessimistic: bool = True) -> float:
    """Epsilon by the loss distribution of all outcomes (`dp_accounting`)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    below, _ = probabilities(variance)
    law = np.log(np.concatenate([below[:0:-1], below]))
    outcomes = range(-(len(below) - 1), len(below))
    added = {z: float(p) for z, p in zip(outcomes, law, strict=True)}
    moved = {z + shift: p for z, p in added.items()}
    found = pld.from_two_probability_mass_functions(
        added, moved, pessimistic_estimate=is_pessimistic, value_discretization_interval=1e-4
    )
    return float(found.self_compose(count).get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("shift", "count", "delta"), [(500, 1, 1e-3), (120, 20, 1e-3)])
def test_the_account_is_that_of_enumeration(shift: int, count: int, delta: float) -> None:
    variance = 2.0**22
    release = rounds(shift, variance, count)
    stated = by_gaussian([release], delta)
    assert enumerated(shift, variance, count, delta, is_pessimistic=False) <= stated
    assert stated <= enumerated(shift, variance, count, delta) * 1.02
    # The twins: half the noise costs more than stated, and Renyi's account is farther away.
    assert enumerated(shift, variance / 2, count, delta, is_pessimistic=False) > stated
    assert by_renyi([release], delta) > stated * 1.05


def test_the_distance_is_paid_for_in_delta() -> None:
    release = rounds(1000, 2.0**32, 100)
    gauss = GaussianRelease(mu=1000 / 2.0**16, count=100)
    for delta in (1e-4, 1e-6):
        plain, ours = by_gaussian([gauss], delta), by_gaussian([release], delta)
        left = delta - (1 + math.exp(ours)) * 100 / 2.0**32
        assert plain < ours == pytest.approx(gaussian_epsilon(1000 / 2.0**16 * 10, left), rel=1e-6)
    assert by_gaussian([release], 1e-8) == math.inf
    assert by_gaussian([release, gauss], 1e-4) > by_gaussian([release], 1e-4)


def test_pure_releases_beside_it_weigh_on_the_distance_too() -> None:
    release = rounds(1000, 2.0**32, 100)
    alone, with_pure = by_gaussian([release], 1e-6), by_gaussian([release, PureRelease(epsilon=2.0)], 1e-6)
    assert alone + 2.0 < with_pure < alone + 2.5
    assert by_gaussian([release, PureRelease(epsilon=800.0)], 1e-6) == math.inf
    # Gaussian noise alone has no distance to pay for, whatever the epsilon.
    assert by_gaussian([GaussianRelease(mu=40.0), PureRelease(epsilon=800.0)], 1e-6) > 1600


def test_every_coordinate_that_a_record_touches_counts() -> None:
    one = rounds(1000, 2.0**32, 100)
    two = replace(one, largest=(1000, 1), variances=(2.0**32, 2.0**30))
    left = 1e-6 - (1 + math.exp(by_gaussian([two], 1e-6))) * 100 * (2.0**-32 + 2.0**-30)
    assert by_gaussian([two], 1e-6) == pytest.approx(gaussian_epsilon(one.mu, left), rel=1e-6)
    assert by_gaussian([two], 1e-6) > by_gaussian([one], 1e-6)


def test_other_accounts_stay_without_it() -> None:
    with pytest.raises(AccountError, match="no loss distribution"):
        by_loss_distribution([rounds(5, 2.0**20, 1)], 1e-4)

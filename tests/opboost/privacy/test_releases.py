"""Releases as values: what they refuse, and that their numbers are rounded to the safe side."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import AccountError, ParameterError
from opboost.privacy.coins import RecordCoins
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
    SelectionRelease,
    SharedByCoins,
    SkellamRounds,
    gaussian,
)

positive = st.floats(1e-6, 1e6)


@given(st.integers(1, 2**53), positive)
def test_a_laplace_releases_epsilon_is_not_below_sensitivity_over_scale(l1, scale):
    epsilon = LaplaceRelease(l1=l1, scale=scale).epsilon
    assert Fraction(l1) / Fraction(scale) <= Fraction(epsilon) <= Fraction(l1) / Fraction(scale) * Fraction(1 + 1e-15)


@given(positive, positive, st.floats(0.01, 0.99))
def test_a_gaussian_releases_mu_is_not_below_sensitivity_over_deviation(l2, std, rate):
    release = gaussian(l2, std, count=3)
    assert isinstance(release, GaussianRelease)
    assert Fraction(release.mu) >= Fraction(l2) / Fraction(std)
    assert gaussian(l2, std, rate=rate, count=3) == SampledGaussianRelease(rate=rate, mu=release.mu, count=3)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, True, "1", None])
@pytest.mark.parametrize(
    "release",
    [
        lambda v: PureRelease(epsilon=v),
        lambda v: SelectionRelease(epsilon=v),
        lambda v: LaplaceRelease(l1=1, scale=v),
        lambda v: GaussianRelease(mu=v),
        lambda v: SampledGaussianRelease(rate=0.5, mu=v),
        lambda v: SkellamRounds(mu=v, largest=(1,), variances=(1.0,), n_rounds=1),
        lambda v: SkellamRounds(mu=1.0, largest=(1, v), variances=(1.0, 1.0), n_rounds=1),
        lambda v: SkellamRounds(mu=1.0, largest=(1, 1), variances=(1.0, v), n_rounds=1),
        lambda v: FilteredRelease(order=2, rho=v),
        lambda v: gaussian(v, 1.0),
        lambda v: gaussian(1.0, v),
    ],
)
def test_a_number_that_is_not_positive_and_finite_is_refused(release, value):
    with pytest.raises(ParameterError, match="Nothing was released"):
        release(value)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_release_happens_a_whole_number_of_times(count):
    for release in (
        lambda: GaussianRelease(mu=1.0, count=count),
        lambda: SkellamRounds(mu=1.0, largest=(1,), variances=(1.0,), n_rounds=count),
    ):
        with pytest.raises(ParameterError, match="number of times"):
            release()


@pytest.mark.parametrize("variances", [(), (1.0,), (1.0, 1.0, 1.0)])
def test_skellam_rounds_have_a_variance_for_every_coordinate(variances):
    with pytest.raises(ParameterError, match="for every coordinate"):
        SkellamRounds(mu=1.0, largest=(1, 1) if variances else (), variances=variances, n_rounds=1)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_a_sampling_rate_is_a_probability(rate):
    with pytest.raises(ParameterError, match="rate"):
        SampledGaussianRelease(rate=rate, mu=1.0)


@pytest.mark.parametrize("order", [1, 0, 2.5, True])
def test_a_filters_order_is_an_integer_from_two(order):
    with pytest.raises(ParameterError, match="order"):
        FilteredRelease(order=order, rho=1.0)


@pytest.mark.parametrize("coins", [None, (0.5, 0.5), 2, "disjoint"])
def test_parallel_composition_without_coins_is_refused(coins):
    with pytest.raises(AccountError, match="coins of the records' own"):
        SharedByCoins(coins=coins, parts=((), ()))


def test_parallel_composition_needs_one_list_of_releases_per_part():
    with pytest.raises(AccountError, match="2 parts were dealt, but releases were given for 1"):
        SharedByCoins(coins=RecordCoins((0.5, 0.5)), parts=((PureRelease(epsilon=1.0),),))


def test_parts_about_which_nothing_was_released_are_refused():
    with pytest.raises(AccountError, match="at least one release"):
        SharedByCoins(coins=RecordCoins((0.5, 0.5)), parts=((), ()))


def test_a_release_cannot_be_changed_and_is_equal_to_its_like():
    release = GaussianRelease(mu=1.0)
    with pytest.raises(FrozenInstanceError):
        release.mu = 0.1
    assert release == GaussianRelease(mu=1.0)
    assert hash(release) == hash(GaussianRelease(mu=1.0))

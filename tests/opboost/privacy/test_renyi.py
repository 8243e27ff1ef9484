"""Renyi divergences against sums over outputs, quadrature and another library; their meaning against the exact one."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ive, logsumexp
from scipy.stats import norm

from opboost.errors import AccountError, ParameterError
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
    SelectionRelease,
    SkellamRounds,
)
from opboost.privacy.renyi import ORDERS, ChargeTable, divergence, renyi_epsilon, sampled_gaussian

FEW = (2, 3, 5, 11, 40)

# Reported values are moved up by 1e-10 of themselves and 4e-15, the sums here are off by less.
ROUNDING = 1e-8


def of_tables(log_p: np.ndarray, log_q: np.ndarray, order: int) -> float:
    """``log(sum over outputs of P^order Q^(1 - order)) / (order - 1)``."""
    return float(logsumexp(order * log_p + (1 - order) * log_q) / (order - 1))


def log_laplace(z: np.ndarray, scale: float) -> np.ndarray:
    return -np.abs(z) / scale + math.log(math.tanh(0.5 / scale))


def log_discrete_gaussian(z: np.ndarray, std: float) -> np.ndarray:
    return -(z**2) / (2 * std**2) - logsumexp(-(np.arange(-5000, 5001) ** 2) / (2 * std**2))


def log_skellam(z: np.ndarray, mean: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(ive(np.abs(z).astype(float), 2 * mean))


@pytest.mark.parametrize(("scale", "l1"), [(1.0, 1), (1.0, 3), (7.0, 2), (50.0, 25), (0.3, 1)])
def test_the_divergence_of_discrete_laplace_noise_is_the_sum_over_outputs(scale, l1):
    z = np.arange(-4000, 4001)
    expected = [of_tables(log_laplace(z, scale), log_laplace(z - l1, scale), order) for order in FEW]
    assert divergence(LaplaceRelease(l1=l1, scale=scale), FEW) == pytest.approx(expected, rel=ROUNDING)


def test_a_laplace_release_that_forgets_the_grid_is_caught_by_the_same_sum():
    """The continuous law's formula is too small when noise is only a few steps wide."""
    z, epsilon, order = np.arange(-400, 401), 1.0, 3
    continuous = math.log(
        order / (2 * order - 1) * math.exp((order - 1) * epsilon)
        + (order - 1) / (2 * order - 1) * math.exp(-order * epsilon)
    ) / (order - 1)
    assert continuous < of_tables(log_laplace(z, 1.0), log_laplace(z - 1, 1.0), order) * 0.97
    assert divergence(LaplaceRelease(l1=2**30, scale=2.0**30), (order,))[0] == pytest.approx(continuous, rel=1e-7)


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0.2, 30))
@settings(max_examples=50, deadline=None)
def test_a_shift_in_one_coordinate_costs_most(first, second, scale):
    one, other, both = (divergence(LaplaceRelease(l1=l1, scale=scale), FEW) for l1 in (first, second, first + second))
    assert (one + other <= both * (1 + ROUNDING) + 1e-13).all()


@given(st.integers(0, 2**32), st.floats(0.01, 8), st.integers(2, 6))
@settings(max_examples=200, deadline=None)
def test_no_pair_of_laws_within_epsilon_diverges_more_than_randomised_response(seed, epsilon, n):
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.full(n, 0.3))
    ratios = np.exp(epsilon * generator.uniform(-0.5, 0.5, n) * generator.choice([0.5, 1.0]))
    q = p * ratios
    log_p, log_q = np.log(p + 1e-300), np.log(q / q.sum() + 1e-300)
    loss = float(np.abs(log_p - log_q)[p > 1e-200].max())
    bounded_range = float(np.ptp((log_p - log_q)[p > 1e-200]))
    for release in (PureRelease(epsilon=max(loss, 1e-9)), SelectionRelease(epsilon=max(bounded_range, 1e-9))):
        found = [of_tables(log_p, log_q, order) for order in FEW]
        assert (np.array(found) <= divergence(release, FEW) + 1e-12).all()


def test_the_divergence_of_randomised_response_is_met_and_nine_tenths_of_it_are_caught():
    log_p = np.log([math.exp(1.5), 1]) - math.log(1 + math.exp(1.5))
    found = [of_tables(log_p, log_p[::-1], order) for order in FEW]
    assert divergence(PureRelease(epsilon=1.5), FEW) == pytest.approx(found, rel=ROUNDING)
    assert (divergence(PureRelease(epsilon=1.5), FEW) * 0.9 < found).all()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("order", [2, 3, 7, 20])
def test_the_sampled_gaussian_formula_is_the_integral_and_dominates_the_other_direction(rate, mu, order):
    def log_mixture(x):
        return np.logaddexp(math.log1p(-rate) + norm.logpdf(x), math.log(rate) + norm.logpdf(x - mu))

    def integral(a, b, peak):
        total, _ = quad(
            lambda x: math.exp(a * log_mixture(x) + b * norm.logpdf(x) - peak), -30, 30 + order * mu, limit=400
        )
        return (math.log(total) + peak) / (order - 1)

    x = np.linspace(-30, 30 + order * mu, 20_001)
    forward_peak = float((order * log_mixture(x) + (1 - order) * norm.logpdf(x)).max())
    forward = integral(order, 1 - order, forward_peak)
    backward = integral(1 - order, order, 0.0)
    stated = sampled_gaussian(rate, mu, (order,))[0]
    assert stated == pytest.approx(forward, rel=1e-6, abs=1e-11)
    assert backward <= stated + 1e-11


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize(("std", "shift"), [(1.0, 1), (3.0, 2)])
def test_sampled_discrete_gaussian_noise_diverges_as_the_sampled_continuous_in_either_direction(rate, std, shift):
    z = np.arange(-900, 901)
    base = log_discrete_gaussian(z, std)
    mixture = np.logaddexp(math.log1p(-rate) + base, math.log(rate) + log_discrete_gaussian(z - shift, std))
    stated = sampled_gaussian(rate, shift / std, FEW)
    assert stated == pytest.approx([of_tables(mixture, base, order) for order in FEW], rel=ROUNDING)
    assert (np.array([of_tables(base, mixture, order) for order in FEW]) <= stated + 1e-12).all()


@pytest.mark.parametrize(("rate", "mu"), [(0.001, 1.0), (0.1, 0.08), (0.5, 2.0), (1.0, 0.3)])
def test_the_sampled_gaussian_is_that_of_dp_accounting(rate, mu):
    """To nine digits: small divergences lose digits there, ours are sums without the leading 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dp_accounting
        from dp_accounting import rdp

    orders = (*range(2, 65, 3), 100, 300)
    accountant = rdp.RdpAccountant(list(orders))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / mu)), 150)
    ours = divergence(SampledGaussianRelease(rate=rate, mu=mu, count=150), orders)
    assert renyi_epsilon(orders, ours, 5e-8)[0] == pytest.approx(accountant.get_epsilon(5e-8), rel=1e-9)


def test_the_rate_times_the_unsampled_divergence_is_caught_by_the_integral():
    assert sampled_gaussian(0.1, 1.0, (20,))[0] > 0.1 * 20 * 1.0**2 / 2


@given(st.floats(1e-4, 0.9), st.floats(1e-7, 1e-3))
@settings(max_examples=50, deadline=None)
def test_small_divergences_keep_their_digits(rate, mu):
    """To first order ``rate^2 (exp(mu^2) - 1)`` at order 2."""
    assert sampled_gaussian(rate, mu, (2,))[0] == pytest.approx(math.log1p(rate**2 * math.expm1(mu**2)), rel=1e-9)


@pytest.mark.parametrize("mean", [1, 4, 30, 500])
@pytest.mark.parametrize("shifts", [(1,), (3,), (1, 2), (1, 1, 1)])
def test_skellam_noise_diverges_at_most_as_stated(mean, shifts):
    z = np.arange(-1500, 1501)
    log_p, stated = log_skellam(z, mean), None
    for order in FEW:
        found = 0.0
        for shift in shifts:
            log_q = log_skellam(z - shift, mean)
            finite = np.isfinite(log_p) & np.isfinite(log_q)
            terms = order * log_p[finite] + (1 - order) * log_q[finite]
            assert max(terms[0], terms[-1]) < terms.max() - 30, "outputs that count are missing"
            found += float(logsumexp(terms) / (order - 1))
        release, doubled = (
            SkellamRounds(
                mu=math.sqrt(sum(s**2 for s in shifts) / variance),
                largest=shifts,
                variances=(variance,) * len(shifts),
                n_rounds=1,
            )
            for variance in (2.0 * mean, 4.0 * mean)
        )
        stated = divergence(release, (order,))[0]
        assert found <= stated
        if mean == 500:
            assert stated < found * 1.05
            assert divergence(doubled, (order,))[0] < found, "a variance twice as large as it is would not be noticed"


@pytest.mark.parametrize("order", [2, 8])
def test_rounds_of_skellam_noise_diverge_at_most_as_stated(order):
    """Of two coordinates, in two rounds of which one is the largest."""
    means, largest, z = (40.0, 10.0), (5, 3), np.arange(-250, 251)
    variances = tuple(2 * mean for mean in means)
    for second in ((0, 0), (1, 0), (5, 3), (2, 3)):
        exact, mu_squared = 0.0, 0.0
        for shifts in (largest, second):
            for shift, mean in zip(shifts, means, strict=True):
                log_p, log_q = log_skellam(z, mean), log_skellam(z - shift, mean)
                exact += float(logsumexp(order * log_p + (1 - order) * log_q)) / (order - 1)
                mu_squared += shift**2 / (2 * mean)
        stated = SkellamRounds(mu=math.sqrt(mu_squared), largest=largest, variances=variances, n_rounds=2)
        assert exact <= divergence(stated, (order,))[0]
        # The twin: a variance twice as large as it is would be noticed.
        doubled = replace(stated, mu=math.sqrt(mu_squared / 2), variances=tuple(2 * each for each in variances))
        assert divergence(doubled, (order,))[0] < exact


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 5e-8])
def test_the_conversion_covers_the_exact_epsilon_of_gaussian_noise_and_not_much_more(mu, delta):
    epsilon, order = renyi_epsilon(ORDERS, divergence(GaussianRelease(mu=mu), ORDERS), delta)
    assert gaussian_epsilon(mu, delta) < epsilon < gaussian_epsilon(mu, delta) * 1.4
    assert order in ORDERS


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_a_published_conversion_that_takes_the_divergence_for_its_log_moment_is_caught_by_the_exact_epsilon(mu):
    """``exp(rho - alpha epsilon) = delta``, with the exponent not multiplied by ``alpha - 1``."""
    rho = divergence(GaussianRelease(mu=mu), ORDERS)
    claimed = ((rho - math.log(5e-8)) / np.array(ORDERS)).min()
    assert claimed < gaussian_epsilon(mu, 5e-8) * 0.7


@given(st.floats(0.001, 1), st.sampled_from([2, 9, 50, 400]), st.floats(1e-4, 2), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_charge_from_the_table_covers_the_exact_one_and_not_much_more(rate, order, largest, seed):
    table = ChargeTable(rate, order=order, largest_mu_squared=largest)
    mu_squared = largest * np.random.default_rng(seed).random(20) ** 3
    charges = table.charges(mu_squared)
    exact = np.array([sampled_gaussian(rate, math.sqrt(each), (order,))[0] for each in mu_squared])
    assert (charges >= exact).all()
    assert (charges <= exact * 1.01 + 1e-4 * exact.max() + 1e-14).all()
    assert table.charges(np.zeros(1))[0] < 1e-14


def test_charges_read_at_the_entry_below_are_caught_by_the_same_comparison():
    table = ChargeTable(0.1, order=20, largest_mu_squared=0.5)
    mu_squared = np.linspace(0.1, 0.5, 50)
    below = (np.floor(np.sqrt(mu_squared / 0.5) * 512) / 512) ** 2 * 0.5
    exact = np.array([sampled_gaussian(0.1, math.sqrt(each), (20,))[0] for each in mu_squared])
    assert (table.charges(below) < exact * (1 - 1e-6)).sum() > 40


@pytest.mark.parametrize("mu_squared", [[-0.1], [0.6], [math.nan]])
def test_a_record_beyond_its_bound_is_refused_before_anything_is_charged(mu_squared):
    with pytest.raises(AccountError, match="nothing was charged"):
        ChargeTable(0.1, order=20, largest_mu_squared=0.5).charges(np.array(mu_squared))


def test_a_filters_release_counts_at_its_own_order_alone():
    assert divergence(FilteredRelease(order=3, rho=0.5), (2, 3, 4)).tolist() == [
        math.inf,
        pytest.approx(0.5, rel=ROUNDING),
        math.inf,
    ]


def test_what_is_not_known_is_refused():
    with pytest.raises(AccountError, match="kind str"):
        divergence("gaussian", FEW)
    with pytest.raises(ParameterError, match="order"):
        divergence(GaussianRelease(mu=1.0), (1.5,))
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="delta"):
            renyi_epsilon(FEW, np.ones(5), delta)

"""Accounts against each other and against enumerated outputs, refusals, and noise that fits its budget."""

from __future__ import annotations

import ast
import inspect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import AccountError, ParameterError
from opboost.privacy import accounting
from opboost.privacy.accounting import (
    by_gaussian,
    by_loss_distribution,
    by_pure,
    by_renyi,
    by_renyi_replaced,
    by_skellam,
    calibrate,
    loss_distribution_profile,
    renyi_account,
    total_mu,
)
from opboost.privacy.coins import RecordCoins
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.releases import (
    FilteredRelease,
    GaussianRelease,
    LaplaceRelease,
    PureRelease,
    SampledGaussianRelease,
    SelectionRelease,
    SharedByCoins,
    SkellamRounds,
)
from opboost.privacy.renyi import sampled_gaussian

HALVES = RecordCoins((0.5, 0.5))
DELTA = 5e-8
EVERY_KIND = [
    PureRelease(epsilon=0.1),
    SelectionRelease(epsilon=0.1),
    LaplaceRelease(l1=3, scale=30.0),
    GaussianRelease(mu=0.1),
    SampledGaussianRelease(rate=0.1, mu=0.1),
    SkellamRounds(mu=0.1, largest=(10**5,), variances=(1e12,), n_rounds=1),
    FilteredRelease(order=30, rho=0.01),
    SharedByCoins(coins=HALVES, parts=((PureRelease(epsilon=0.1),), (GaussianRelease(mu=0.1),))),
]


@given(st.lists(st.floats(1e-3, 10), min_size=1, max_size=5), st.integers(1, 5))
def test_pure_epsilons_add_up(epsilons, count):
    released = [SelectionRelease(epsilon=epsilon, count=count) for epsilon in epsilons]
    assert math.fsum(epsilons) * count <= by_pure(released) <= math.fsum(epsilons) * count * (1 + 1e-14)


def test_a_tree_by_coins_costs_as_much_as_its_costliest_part_and_ensembles_add_up():
    def tree(epsilon):
        return (SelectionRelease(epsilon=epsilon / 4, count=2), PureRelease(epsilon=epsilon / 2))

    ensemble = SharedByCoins(coins=HALVES, parts=(tree(0.5), tree(0.25)))
    assert by_pure([ensemble]) == pytest.approx(0.5)
    assert by_pure([ensemble] * 3) == pytest.approx(1.5)
    assert by_pure([SharedByCoins(coins=HALVES, parts=(tree(0.5), ()), count=4)]) == pytest.approx(2.0)


def law_of_two_noisy_sums(assignments, values, epsilon: float) -> np.ndarray:
    """The law of the two parts' sums with discrete Laplace noise, over all ways to deal the records."""
    z = np.arange(-12, 16)
    total = np.zeros((len(z), len(z)))
    for probability, parts in assignments:
        sums = [sum(value for value, part in zip(values, parts, strict=True) if part == k) for k in (0, 1)]
        first, second = (np.exp(-epsilon * np.abs(z - each)) * math.tanh(epsilon / 2) for each in sums)
        total += probability * first[:, None] * second
    return total


def by_halves(n: int):
    return [(0.5**n, parts) for parts in itertools.product((0, 1), repeat=n)]


def by_fixed_sizes(n: int):
    dealt = set(itertools.permutations([0] * ((n + 1) // 2) + [1] * (n // 2)))
    return [(1 / len(dealt), parts) for parts in dealt]


def loss_of_two_noisy_sums(deal, epsilon: float) -> float:
    worst = 0.0
    for values in itertools.product((0, 1), repeat=2):
        for more in (0, 1):
            before = law_of_two_noisy_sums(deal(2), values, epsilon)
            after = law_of_two_noisy_sums(deal(3), (*values, more), epsilon)
            worst = max(worst, float(np.abs(np.log(after / before)).max()))
    return worst


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_two_parts_by_coins_lose_epsilon_once(epsilon):
    release = SharedByCoins(coins=HALVES, parts=((PureRelease(epsilon=epsilon),),) * 2)
    assert epsilon * 0.5 < loss_of_two_noisy_sums(by_halves, epsilon) <= by_pure([release]) * (1 + 1e-12)


def test_two_parts_of_fixed_size_are_caught_by_the_same_enumeration():
    assert loss_of_two_noisy_sums(by_fixed_sizes, 3.0) > 3.0 * 1.5


@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_gaussian_releases_are_one_with_the_root_of_the_sum_of_squares(mus):
    released = [GaussianRelease(mu=mu) for mu in mus]
    assert total_mu(released) == pytest.approx(math.hypot(*mus), rel=1e-14)
    assert by_gaussian(released, DELTA) == gaussian_epsilon(total_mu(released), DELTA)
    again = [GaussianRelease(mu=mus[0], count=4)]
    assert total_mu(again) == pytest.approx(2 * mus[0], rel=1e-14)


def test_pure_releases_beside_gaussian_ones_add_their_epsilon():
    released = [GaussianRelease(mu=0.3), PureRelease(epsilon=0.2)]
    assert by_gaussian(released, DELTA) == pytest.approx(gaussian_epsilon(0.3, DELTA) + 0.2, rel=1e-12)


def test_gaussian_parts_by_coins_cost_as_much_as_the_costliest():
    shared = SharedByCoins(coins=HALVES, parts=((GaussianRelease(mu=0.3),), (GaussianRelease(mu=0.1, count=4),)))
    assert total_mu([shared]) == pytest.approx(0.3)
    assert by_renyi([shared], DELTA) == pytest.approx(by_renyi([GaussianRelease(mu=0.3)], DELTA))


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_accounts_of_gaussian_noise_agree_up_to_what_each_of_them_loses(mu):
    released = [GaussianRelease(mu=mu / 3, count=9)]
    exact = by_gaussian(released, DELTA)
    assert exact <= by_loss_distribution(released, DELTA) <= exact * 1.001
    assert exact * 1.01 < by_renyi(released, DELTA) < exact * 1.3


@pytest.mark.parametrize(("rate", "mu", "count"), [(0.1, 0.0814, 150), (0.01, 0.5, 400), (1.0, 0.05, 50)])
def test_a_loss_distribution_needs_less_epsilon_than_renyi_divergences(rate, mu, count):
    released = [SampledGaussianRelease(rate=rate, mu=mu, count=count)]
    assert by_renyi(released, DELTA) * 0.8 < by_loss_distribution(released, DELTA) < by_renyi(released, DELTA)


def test_a_loss_distribution_covers_several_kinds_and_pure_releases_by_their_worst_case():
    released = [PureRelease(epsilon=0.5, count=2), SampledGaussianRelease(rate=0.5, mu=0.3), GaussianRelease(mu=0.1)]
    pure, sampled, gaussian = released
    parts = 1.0 + by_loss_distribution([sampled], DELTA / 2) + by_gaussian([gaussian], DELTA / 2)
    assert by_loss_distribution([pure], 1e-3) == pytest.approx(1.0, rel=0.01)
    assert 1.0 < by_loss_distribution(released, DELTA) < parts
    assert loss_distribution_profile([pure], (1e-3, DELTA)) == tuple(
        by_loss_distribution([pure], delta) for delta in (1e-3, DELTA)
    )


@pytest.mark.parametrize("mu", [0.02, 0.1, 0.5, 2.0])
def test_a_record_that_is_replaced_moves_a_gaussian_release_by_twice_its_sensitivity(mu):
    exact = gaussian_epsilon(2 * mu, DELTA)
    assert exact <= by_renyi_replaced([GaussianRelease(mu=mu)], DELTA) <= exact * 1.13
    # Twin: the account of a record that is added or removed.
    assert by_renyi([GaussianRelease(mu=mu)], DELTA) < exact


OUTPUTS, STEP = np.linspace(-30, 30, 60_001, retstep=True)


def sampled(rate: float, mu: float) -> np.ndarray:
    """The density of a noised query, whose record moves it by mu if its coin says so."""
    moved, still = (np.exp(-((OUTPUTS - shift) ** 2) / 2) / math.sqrt(2 * math.pi) for shift in (mu, 0.0))
    return rate * moved + (1 - rate) * still


def renyi_between(one: np.ndarray, other: np.ndarray, order: float) -> float:
    return float(np.log(np.sum(np.exp(order * np.log(one) - (order - 1) * np.log(other))) * STEP) / (order - 1))


@pytest.mark.parametrize(("rate", "mu"), [(0.1, 1.0), (0.5, 0.5), (0.5, 2.0), (0.9, 1.0)])
@pytest.mark.parametrize("order", [2, 5, 20])
def test_divergences_of_replaced_records_are_bounded_by_two_steps(rate, mu, order):
    one, other, alpha = sampled(rate, mu), sampled(rate, -mu), order**2 / (2 * order - 1)
    of_both = sampled_gaussian(rate, mu, (order,))[0] * (2 * order - 1) / (order - 1)
    assert renyi_between(one, other, alpha) <= of_both
    # Twin: the divergence of one step.
    assert renyi_between(one, other, alpha) > renyi_between(one, sampled(rate, 0.0), alpha)


@pytest.mark.parametrize(("rate", "mu"), [(0.1, 1.0), (0.5, 0.5), (0.9, 1.0), (1.0, 0.7)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_replaced_records_are_told_apart_with_no_more_than_the_delta_said(rate, mu, delta):
    epsilon = by_renyi_replaced([SampledGaussianRelease(rate=rate, mu=mu)], delta)
    assert np.sum(np.maximum(sampled(rate, mu) - math.exp(epsilon) * sampled(rate, -mu), 0.0)) * STEP <= delta


def test_noise_multipliers_of_the_tight_account_are_the_published_ones():
    """Rate .1, 150 rounds, delta 5e-8, epsilon .5; a multiplier of sqrt(2) / mu."""

    def plan(multiplier):
        return [SampledGaussianRelease(rate=0.1, mu=math.sqrt(2) / multiplier, count=150)]

    by_divergence = calibrate(plan, epsilon=0.5, delta=DELTA, account=by_renyi)
    by_losses = calibrate(
        plan, epsilon=0.5, delta=DELTA, account=by_loss_distribution, guess=by_divergence, tolerance=1e-3
    )
    assert (f"{by_divergence:.1f}", f"{by_losses:.1f}") == ("17.4", "16.3")
    assert renyi_account(plan(by_divergence), DELTA)[1] == 50


@pytest.mark.parametrize(
    ("n", "printed"),
    [(21113, "6.92302 3.68884"), (22400, "6.95308 3.70307"), (70000, "7.50238 3.96586"), (84188, "7.58761 4.00865")],
)
def test_noise_by_renyi_divergences_at_delta_one_over_n_is_the_published_one(n, printed):
    noise = [
        calibrate(lambda m: [GaussianRelease(mu=1 / m)], epsilon=epsilon, delta=1 / n, account=by_renyi)
        for epsilon in (0.5, 1.0)
    ]
    assert noise == pytest.approx([float(number) for number in printed.split()], rel=3e-6)


def test_a_filters_order_decides_and_two_different_ones_leave_nothing():
    released = [FilteredRelease(order=77, rho=0.05), LaplaceRelease(l1=1, scale=50.0)]
    epsilon, order = renyi_account(released, DELTA)
    assert order == 77
    assert epsilon == by_renyi(released, DELTA)
    assert math.isinf(by_renyi([*released, FilteredRelease(order=78, rho=0.05)], DELTA))


KNOWN = {
    by_pure: {PureRelease, SelectionRelease, LaplaceRelease},
    by_gaussian: {PureRelease, SelectionRelease, LaplaceRelease, GaussianRelease, SkellamRounds},
    by_renyi: {type(release) for release in EVERY_KIND},
    by_skellam: {PureRelease, SelectionRelease, LaplaceRelease, GaussianRelease, SkellamRounds},
    by_loss_distribution: {PureRelease, SelectionRelease, LaplaceRelease, GaussianRelease, SampledGaussianRelease},
}


@pytest.mark.parametrize("account", KNOWN, ids=lambda account: account.__name__)
@pytest.mark.parametrize("release", EVERY_KIND, ids=lambda release: type(release).__name__)
def test_an_account_takes_the_kinds_it_knows_and_refuses_every_other(account, release):
    if type(release) in KNOWN[account]:
        assert 0 < account([release], DELTA) < 10
        assert account([release, PureRelease(epsilon=0.1)], DELTA) > account([PureRelease(epsilon=0.1)], DELTA) * 0.999
    else:
        with pytest.raises(AccountError, match="nothing was released"):
            account([PureRelease(epsilon=0.1), release], DELTA)


@pytest.mark.parametrize("account", KNOWN, ids=lambda account: account.__name__)
def test_what_is_no_release_and_an_empty_list_are_refused(account):
    for released in ([], ["laplace"], [None], [0.5]):
        with pytest.raises(AccountError):
            account(released, DELTA)


@pytest.mark.parametrize("account", [by_gaussian, by_renyi, by_loss_distribution])
@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_that_is_none_is_refused(account, delta):
    with pytest.raises(ParameterError, match="delta"):
        account([GaussianRelease(mu=0.1)], delta)


PLANS = {
    "gaussian": (lambda m: [GaussianRelease(mu=1 / m, count=20)], by_gaussian),
    "gaussian, renyi": (lambda m: [GaussianRelease(mu=1 / m, count=20)], by_renyi),
    "sampled": (lambda m: [SampledGaussianRelease(rate=0.1, mu=1 / m, count=100)], by_renyi),
    "with a fixed part": (lambda m: [PureRelease(epsilon=0.05), GaussianRelease(mu=1 / m)], by_gaussian),
    "laplace": (lambda m: [LaplaceRelease(l1=2**20, scale=2**20 * m)], by_pure),
    "skellam": (
        lambda m: [SkellamRounds(mu=1 / m, largest=(2**12,), variances=((2**12 * m) ** 2,), n_rounds=1)],
        by_renyi,
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibrated_noise_fits_its_budget_and_hardly_less_would(name, epsilon):
    plan, account = PLANS[name]
    multiplier = calibrate(plan, epsilon=epsilon, delta=1e-6, account=account)
    assert account(plan(multiplier), 1e-6) <= epsilon
    assert account(plan(multiplier * (1 - 3e-6)), 1e-6) > epsilon
    assert calibrate(plan, epsilon=epsilon, delta=1e-6, account=account, guess=100.0) == pytest.approx(
        multiplier, rel=2e-6
    )


def test_a_plan_that_no_noise_brings_into_the_budget_is_refused():
    with pytest.raises(AccountError, match="nothing was released"):
        calibrate(
            lambda m: [PureRelease(epsilon=1.1), GaussianRelease(mu=1 / m)],
            epsilon=1.0,
            delta=1e-6,
            account=by_gaussian,
        )
    with pytest.raises(AccountError, match="not a number"):
        calibrate(lambda m: [GaussianRelease(mu=1 / m)], epsilon=1.0, delta=1e-6, account=lambda *_: math.nan)
    for epsilon in (0.0, math.inf, math.nan):
        with pytest.raises(ParameterError):
            calibrate(lambda m: [GaussianRelease(mu=1 / m)], epsilon=epsilon, delta=1e-6, account=by_gaussian)


def test_the_slow_library_is_imported_only_when_a_loss_distribution_is_asked_for():
    at_import = ast.parse(inspect.getsource(accounting)).body
    names = [ast.unparse(node) for node in at_import if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not [name for name in names if "dp_accounting" in name]
    assert "dp_accounting" in inspect.getsource(accounting)

"""The account of noisy leaves: within the budget, exact where it says so, and unharmed by the filter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import by_loss_distribution, by_renyi
from opboost.privacy.gaussian import gaussian_delta
from opboost.privacy.published import sgbdt_noise, zhu_wang
from opboost.privacy.releases import SampledGaussianRelease
from opboost.privacy.renyi import sampled_gaussian
from opboost.privacy.renyi_filter import RenyiFilter
from tests.support.gaussian_budget import gaussian_mu

DELTA = 5e-8
CLIPPING = Clipping(max_grad=0.5, max_hess=1.0, ratio=4.0)


def noise(**changes) -> LeafNoise:
    settings = {"epsilon": 0.5, "delta": DELTA, "n_trees": 20, "rate": 1.0, "initial_share": 0.05, "has_filter": False}
    return leaf_noise(CLIPPING, **(settings | changes))


@pytest.mark.parametrize("has_filter", [False, True])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 4.0])
def test_the_noise_fits_the_budget_and_leaves_nothing_of_it(has_filter, epsilon):
    spent = noise(epsilon=epsilon, has_filter=has_filter).epsilon(DELTA)
    assert epsilon * (1 - 1e-5) < spent <= epsilon


@pytest.mark.parametrize("has_filter", [False, True])
def test_sampled_noise_fits_the_budget(has_filter):
    found = noise(rate=0.1, has_filter=has_filter)
    assert 0.5 * (1 - 1e-2) < found.epsilon(DELTA) <= 0.5
    assert found.account is (by_renyi if has_filter else by_loss_distribution)


def test_all_gaussian_releases_together_are_one():
    found = noise(initial_share=0.0)
    assert math.sqrt(20) / found.multiplier == pytest.approx(gaussian_mu(0.5, DELTA), rel=1e-5)
    shared = noise(initial_share=0.2)
    assert (1 / shared.initial_std) ** 2 == pytest.approx(0.2 * gaussian_mu(0.5, DELTA) ** 2, rel=1e-5)


def test_what_comes_before_the_trees_takes_its_share_and_the_sum_is_the_budget():
    ours = noise(initial_share=0.1, cells_share=0.2)
    total = gaussian_mu(0.5, DELTA) ** 2
    assert ours.initial_std**-2 == pytest.approx(0.1 * total, rel=1e-4)
    assert ours.cells_std**-2 == pytest.approx(0.2 * total, rel=1e-4)
    assert len(ours.releases) == 3
    assert ours.epsilon(DELTA) <= 0.5
    # Twin: an account that forgot the counts would come out below the budget, and not by little.
    assert ours.account(ours.releases[::2], DELTA) < 0.46


def test_individual_prices_cover_the_exact_divergence_of_each_record():
    found = noise(has_filter=True, rate=0.1)
    prices = found.prices()
    assert prices is not None
    assert found.order is not None
    sizes = np.linspace(0.01, 1, 37) * found.mu**2
    exact = [sampled_gaussian(0.1, math.sqrt(size), (found.order,))[0] for size in sizes]
    assert (prices.charges(sizes) >= exact).all()


def loss_of_an_adaptive_adversary(admit, n_runs: int = 20_000) -> np.ndarray:
    """Log likelihood ratios under noise alone, of shifts that react to what came out before."""
    generator, budget = np.random.default_rng(5), 1.0
    spent, loss = np.zeros(n_runs), np.zeros(n_runs)
    for _ in range(60):
        shift = np.where(loss > 0, 0.9, 0.3) + 0.2 * (loss < -0.5)
        cost = shift**2
        takes_part = admit(spent, cost, budget)
        spent += np.where(takes_part, cost, 0.0)
        loss += np.where(takes_part, shift * generator.standard_normal(n_runs) - cost / 2, 0.0)
    rest = np.maximum(budget - spent, 0.0)
    return loss + np.sqrt(rest) * generator.standard_normal(n_runs) - rest / 2


def delta_at(losses: np.ndarray, epsilon: float) -> float:
    """E[(exp(loss) - exp(epsilon))+] under noise alone is delta."""
    return float(np.maximum(np.exp(losses) - math.exp(epsilon), 0.0).mean())


def test_a_filtered_adaptive_sequence_is_one_gaussian_release():
    """20,000 runs: the mean's standard error is under 0.009, so that five of them are exceeded once in a million."""
    losses = loss_of_an_adaptive_adversary(lambda spent, cost, budget: spent + cost <= budget)
    assert np.mean(losses) == pytest.approx(-0.5, abs=0.045)
    assert np.var(losses) == pytest.approx(1.0, abs=0.06)
    assert delta_at(losses, 1.0) == pytest.approx(gaussian_delta(1.0, 1.0), abs=0.03)


def test_a_filter_that_admits_before_it_charges_is_not():
    losses = loss_of_an_adaptive_adversary(lambda spent, cost, budget: spent < budget)
    assert np.var(losses) > 1.06


def test_the_published_conversion_claims_a_fraction_of_what_its_noise_is_worth():
    """Spec, V7: claimed 0.15 / 0.54 at delta = 5e-8 and rate 0.1 is 1.06 / 2.04 for 150 trees."""
    for n_trees, expected in ((50, (0.69, 1.42)), (150, (1.06, 2.04)), (300, (1.32, 2.50))):
        for claimed, real in zip((0.15, 0.54), expected, strict=True):
            variance, _ = sgbdt_noise(epsilon=claimed, delta=DELTA, n_trees=n_trees, rate=0.1, cost=1.0)
            trees = SampledGaussianRelease(rate=0.1, mu=math.sqrt(2 / variance), count=n_trees)
            assert by_renyi([trees], DELTA) == pytest.approx(real, abs=0.006)


def test_the_general_bound_on_sampling_is_above_the_exact_one():
    for order in (2, 5, 40):
        assert zhu_wang(0.1, 0.01, order) >= sampled_gaussian(0.1, math.sqrt(0.02), (order,))[0] * (1 - 1e-12)
    assert zhu_wang(0.1, 0.01, 40) > 1.5 * sampled_gaussian(0.1, math.sqrt(0.02), (40,))[0]


def test_the_code_s_scale_of_the_mean_s_noise_is_half_of_what_it_needs():
    """Spec, V9: the mean of n labels in [-1, 1] moves by 2 / (n + 1), not by 1 / (n + 1)."""
    n = 100
    before, after = np.full(n, -1.0).mean(), np.append(np.full(n, -1.0), 1.0).mean()
    assert after - before == pytest.approx(2 / (n + 1))


def test_without_noise_there_is_no_promise_and_nothing_to_filter():
    found = noise(epsilon=math.inf, has_filter=True)
    assert (found.grad_std, found.hess_std, found.epsilon(DELTA)) == (0.0, 0.0, math.inf)
    assert found.filter_for(5) is None


def test_what_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="subsample must lie in"):
        noise(rate=0.0)
    with pytest.raises(ParameterError, match="initial_share and cells_share must be"):
        noise(initial_share=1.0)
    with pytest.raises(AccountError, match="a charge is negative"):
        RenyiFilter(1, order=2, budget=1.0).admit(np.array([-1.0]))

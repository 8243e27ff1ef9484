"""Published accounting: its theorem bounds the sampled Gaussian's divergence from above, its conversion is its own."""

from __future__ import annotations

import math

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from opboost.errors import AccountError, ParameterError
from opboost.privacy.published import dpboost_gain_sensitivity, sgbdt_noise, zhu_wang


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("order", [2, 5])
def test_the_theorem_is_no_less_than_the_divergence_itself(rate: float, order: int) -> None:
    mu = 0.5

    def moment(x: float) -> float:
        ratio = (1 - rate) + rate * math.exp(mu * x - mu**2 / 2)
        return norm.pdf(x) * ratio**order

    divergence = math.log(quad(moment, -30, 30)[0]) / (order - 1)
    assert zhu_wang(rate, mu**2 / 2, order) >= divergence - 1e-9


def test_the_least_variance_uses_up_the_claimed_budget_by_the_theorem() -> None:
    variance, order = sgbdt_noise(epsilon=1.0, delta=1e-5, n_trees=20, rate=0.1, cost=0.6)
    claimed = (20 * zhu_wang(0.1, 0.6 / variance, order) - math.log(1e-5)) / order
    assert claimed == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError, match="a budget needs epsilon > 0"):
        sgbdt_noise(epsilon=epsilon, delta=delta, n_trees=1, rate=0.5, cost=1.0)


def test_a_budget_that_no_variance_meets_is_refused() -> None:
    with pytest.raises(AccountError, match="finds no variance"):
        sgbdt_noise(epsilon=0.001, delta=1e-9, n_trees=1000, rate=1.0, cost=1.0)


@pytest.mark.parametrize("max_grad", [0.5, 1.0])
def test_the_slides_sensitivity_is_below_the_range_of_the_gain(max_grad: float) -> None:
    assert dpboost_gain_sensitivity(0.0, max_grad) == max_grad**2 < 2 * max_grad**2
    assert dpboost_gain_sensitivity(1.0, max_grad) < dpboost_gain_sensitivity(0.0, max_grad)

"""The exact Gaussian account against quadrature with many digits, its inverses, and published numbers."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.gaussian import gaussian_delta, gaussian_epsilon
from tests.support.gaussian_budget import gaussian_mu

budgets = st.tuples(st.floats(1e-3, 30), st.floats(-16, -1).map(lambda log: 10**log))


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """``integral of max(0, p(x - mu) - exp(epsilon) p(x))``, in closed form with 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (1.0, 0.0), (2.0, 3.0)])
def test_the_closed_form_is_the_hockey_stick_divergence(mu, epsilon):
    def excess(x):
        return mpmath.npdf(x - mu) - mpmath.exp(epsilon) * mpmath.npdf(x)

    start = epsilon / mu + mu / 2
    assert mpmath.quad(excess, [start, start + 10, start + 30]) == pytest.approx(exact_delta(mu, epsilon), rel=1e-10)


@given(st.floats(-6, 3).map(lambda log: 10**log), st.floats(0, 100))
@settings(max_examples=300, deadline=None)
def test_delta_is_the_exact_one_rounded_up_by_little(mu, epsilon):
    exact, ours = exact_delta(mu, epsilon), gaussian_delta(mu, epsilon)
    if exact > mpmath.mpf("1e-280"):
        assert exact <= ours <= min(exact * (1 + mpmath.mpf("3e-8")), 1)


@given(st.floats(1e-3, 20), st.floats(-16, -1).map(lambda log: 10**log))
@settings(max_examples=200, deadline=None)
def test_epsilon_covers_delta_and_hardly_less_would(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-9)) > delta


@given(budgets)
@settings(max_examples=200, deadline=None)
def test_the_largest_mu_fits_its_budget_and_hardly_more_would(budget):
    epsilon, delta = budget
    mu = gaussian_mu(epsilon, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-9), epsilon) > delta


@pytest.mark.parametrize("delta", [1e-5, 5e-8])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_classical_formula_needs_more_noise_and_a_third_of_it_off_is_caught(epsilon, delta):
    """``sqrt(2 log(1.25 / delta)) / epsilon`` is sufficient below epsilon 1 and not tight."""
    std = 1 / gaussian_mu(epsilon, delta)
    assert std < math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert exact_delta(3 / (2 * std), epsilon) > delta


@pytest.mark.parametrize(
    ("n", "printed"),
    [
        (21113, "26.6203 6.27730 3.36897"),
        (22400, "26.7838 6.30706 3.38320"),
        (70000, "29.8322 6.86362 3.64988"),
        (84188, "30.3090 6.95100 3.69182"),
    ],
)
def test_noise_for_one_query_at_delta_one_over_n_is_the_published_one(n, printed):
    noise = [1 / gaussian_mu(epsilon, 1 / n) for epsilon in (0.1, 0.5, 1.0)]
    assert noise == pytest.approx([float(number) for number in printed.split()], rel=3e-6)


def test_a_large_delta_needs_no_epsilon():
    assert gaussian_epsilon(0.01, 0.1) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_beyond_the_range_of_accuracy_delta_is_that_of_its_end(epsilon):
    assert gaussian_delta(1e-9, epsilon) == gaussian_delta(1e-6, epsilon)
    assert gaussian_delta(1e9, epsilon) == 1.0
    assert gaussian_epsilon(1e9, 1e-5) == math.inf


@pytest.mark.parametrize(("mu", "epsilon"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -0.1), (math.nan, 1.0), (1.0, math.nan)])
def test_arguments_out_of_range_are_refused(mu, epsilon):
    with pytest.raises(ParameterError):
        gaussian_delta(mu, epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(ParameterError, match="delta"):
        gaussian_epsilon(1.0, delta)

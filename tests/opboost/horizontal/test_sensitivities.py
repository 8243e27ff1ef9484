"""How far one record moves what the recipes release, by brute force; each constant that a paper got wrong fails."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opboost.horizontal.dpboost.training import DPBoostSettings
from opboost.horizontal.inprivate.training import boosted_residuals
from opboost.horizontal.splits.exponential_splits import gain_range
from opboost.privacy.published import dpboost_gain_sensitivity

LAMBDAS = (0.0, 0.1, 1.0, 10.0)
STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def value(gradients: tuple[float, ...], lam: float) -> float:
    weight = len(gradients) + lam
    return sum(gradients) ** 2 / weight if weight else 0.0


def changes(lam: float, most: int = 5) -> list[float]:
    """Change of one child's gain by one record more, over all children of few records."""
    return [
        value((*child, new), lam) - value(child, lam)
        for n in range(most + 1)
        for child in itertools.combinations_with_replacement(STEPS, n)
        for new in STEPS
    ]


def extremal(n: int, lam: float) -> float:
    """All n records of a child at +1, and a new one at -1."""
    return value((1.0,) * n, lam) - ((n - 1) ** 2 / (n + 1 + lam))


@pytest.mark.parametrize("lam", LAMBDAS)
def test_the_gain_rises_by_at_most_one_and_falls_by_less_than_three(lam):
    found = changes(lam)
    assert max(found) <= 1 + 1e-12
    assert min(found) > -3
    assert max(extremal(n, lam) for n in (1, 2, 10, 100, 10**6)) < 3


def test_the_bounds_of_the_gain_are_reached_in_the_limit():
    assert max(changes(0.0)) == pytest.approx(1.0)
    assert extremal(10**6, 0.1) == pytest.approx(3.0, abs=1e-5)
    assert extremal(10**6, 0.1) + max(changes(0.0)) <= gain_range(1.0)


def test_the_range_needs_both_directions():
    """One candidate puts the new record into an empty child (+1), another into a large one of the other sign (-3)."""
    n = 10**6
    spread = 1.0 + extremal(n, 0.0)
    assert spread > 0.999 * gain_range(1.0)
    assert spread > 3.9


@pytest.mark.parametrize("lam", LAMBDAS)
def test_the_constant_of_the_slides_is_exceeded_by_two_records(lam):
    assert extremal(2, lam) > dpboost_gain_sensitivity(lam, 1.0) or lam == 10.0
    assert extremal(10**6, lam) > 2 * dpboost_gain_sensitivity(lam, 1.0) or lam == 0.0


@pytest.mark.parametrize("lam", LAMBDAS)
def test_a_leafs_value_moves_by_at_most_g_over_one_plus_lambda(lam):
    settings = _settings(reg_lambda=lam)

    def leaf(child: tuple[float, ...]) -> float:
        return -sum(child) / (len(child) + lam) if len(child) + lam else 0.0

    found = max(
        abs(leaf((*child, new)) - leaf(child))
        for n in range(6)
        for child in itertools.combinations_with_replacement(STEPS, n)
        for new in STEPS
    )
    assert found <= settings.leaf_sensitivity(0) + 1e-12
    assert found == pytest.approx(1 / (1 + lam))  # tight: it is reached


@pytest.mark.parametrize("place", range(5))
def test_clipped_leaves_move_by_at_most_twice_the_clip(place):
    settings = _settings(reg_lambda=0.0, clips_leaves=True, learning_rate=0.5)
    bound = settings.leaf_bound(place)
    assert bound == 0.5**place
    values = np.clip(np.linspace(-3, 3, 61), -bound, bound)
    assert np.ptp(values) <= 2 * bound
    assert settings.leaf_sensitivity(place) == min(1.0, 2 * bound)


def squared_error(child: tuple[float, ...]) -> float:
    return float(np.var(child)) * len(child) if child else 0.0


def test_inprivates_error_without_the_nodes_own_term_is_the_gain_and_changes_in_one_direction():
    """``-(E_L + E_R)`` falls by at most 4 and never rises: half the range that the paper pays for."""
    found = [
        squared_error((*child, new)) - squared_error(child)
        for n in range(6)
        for child in itertools.combinations_with_replacement(STEPS, n)
        for new in STEPS
    ]
    assert min(found) >= -1e-12
    assert max(found) < gain_range(1.0)
    left, right = (0.5, -1.0, 0.25), (1.0, 0.75)
    whole = sum(x * x for x in left + right)
    assert whole - squared_error(left) - squared_error(right) == pytest.approx(value(left, 0.0) + value(right, 0.0))


def test_inprivates_sensitivity_doubles_when_a_record_is_replaced():
    n = 500
    before = (1.0,) * n + (-1.0,) * n
    moved = squared_error(before) - squared_error((1.0,) * n) - squared_error((-1.0,) * n)
    after = squared_error(before) - squared_error((1.0,) * (n - 1)) - squared_error((-1.0,) * n + (1.0,))
    assert abs(moved - after) < 4
    swapped = squared_error((1.0,) * n + (-1.0,)) + squared_error((-1.0,) * (n - 1) + (1.0,))
    assert swapped > 1.9 * 4 * (1 - 3 / n)


def test_logistic_residuals_go_beyond_one_so_that_they_must_be_clipped():
    grad, hess = boosted_residuals(np.array([-3.0, -1.0, 3.0]), np.array([1.0, 1.0, 0.0]))
    assert (np.abs(grad) > 1.7).all()
    np.testing.assert_allclose(hess, np.abs(grad) * (2 - np.abs(grad)))
    assert (hess <= 1).all()


def _settings(**changes) -> DPBoostSettings:
    plain = {
        "n_trees": 4,
        "trees_per_ensemble": 4,
        "max_depth": 2,
        "scheme": "eoe",
        "learning_rate": 0.3,
        "reg_lambda": 1.0,
        "max_grad": 1.0,
        "leaf": "value",
        "noise_lambda": 0.0,
        "filters_gradients": False,
        "clips_leaves": False,
    }
    return DPBoostSettings(**(plain | changes))

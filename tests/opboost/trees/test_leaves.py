"""Newton steps of leaves: within their bounds, and zero where a leaf is too light."""

import numpy as np
import pytest

from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import GradientGrid

GRID = GradientGrid(2.0**20, 2.0**10)


FREE = np.array([-np.inf]), np.array([np.inf])


@pytest.mark.parametrize(
    ("grad", "hess", "reg_lambda", "value"),
    [(3.0, 2.0, 1.0, -1.0), (-3.0, 1.5, 0.0, 2.0), (3.0, 0.5, 1.0, 0.0), (3.0, 0.0, 1.0, 0.0), (0.0, 2.0, 1.0, 0.0)],
    ids=["newton step", "no regularisation", "too light", "empty", "balanced"],
)
def test_a_leaf_takes_the_newton_step_unless_it_is_too_light(
    grad: float, hess: float, reg_lambda: float, value: float
) -> None:
    totals = np.array([[grad * GRID.grad_scale, hess * GRID.hess_scale]]).astype(np.int64)
    assert NewtonLeaves(GRID, reg_lambda, 1.0).values(totals, *FREE) == pytest.approx([value])


@pytest.mark.parametrize(("lower", "upper", "value"), [(-9.0, 9.0, -1.0), (-0.5, 9.0, -0.5), (-9.0, -2.0, -2.0)])
def test_a_leaf_stays_within_its_bounds(lower: float, upper: float, value: float) -> None:
    totals = np.array([[3.0 * GRID.grad_scale, 2.0 * GRID.hess_scale]]).astype(np.int64)
    found = NewtonLeaves(GRID, 1.0, 1.0).values(totals, np.array([lower]), np.array([upper]))
    assert found.tolist() == [value]


def test_a_leaf_that_is_too_light_is_moved_within_its_bounds() -> None:
    found = NewtonLeaves(GRID, 1.0, 1.0).values(np.zeros((1, 2), np.int64), np.array([0.25]), np.array([1.0]))
    assert found.tolist() == [0.25]


def test_an_empty_leaf_stays_at_zero_even_without_regularisation() -> None:
    assert NewtonLeaves(GRID, 0.0, 0.0).values(np.zeros((1, 2), np.int64), *FREE).tolist() == [0.0]

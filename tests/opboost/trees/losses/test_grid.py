"""The grid of gradients: powers of two, as fine as the bounds allow, and weights that are counts multiply exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.trees.kernels.packing import GRAD_BITS, HESS_BITS
from opboost.trees.losses.grid import MAX_COUNT_OF_A_ROW, GradientGrid

BOUNDS = st.floats(1e-12, 1e12)


@given(BOUNDS, BOUNDS)
def test_steps_are_the_finest_powers_of_two_that_hold_the_bounds(max_grad: float, max_hess: float) -> None:
    grid = GradientGrid.for_bounds(max_grad, max_hess)
    for scale, bound, n_bits in ((grid.grad_scale, max_grad, GRAD_BITS), (grid.hess_scale, max_hess, HESS_BITS)):
        assert math.frexp(scale)[0] == 0.5
        assert bound * scale <= 2 ** (n_bits - 1) < 2 * bound * scale * (1 + 1e-9)
    assert grid.rounding == (grid.grad_scale, grid.hess_scale, False)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_small_whole_weights_are_counts_and_leave_the_step_as_it_is(weights: list[int]) -> None:
    grid = GradientGrid.for_weights(1.0, 0.25, np.array(weights, float))
    plain = GradientGrid.for_bounds(1.0, 0.25)
    assert grid.weights_are_counts is (1 < max(weights) <= MAX_COUNT_OF_A_ROW)
    if grid.weights_are_counts:
        assert (grid.grad_scale, grid.hess_scale) == (plain.grad_scale, plain.hess_scale)
    elif max(weights) == 1:
        assert grid == plain


@pytest.mark.parametrize("weights", [[1.0, 2.5], [0.5, 3.0], [100.0, 1.0]])
def test_other_weights_widen_the_bounds(weights: list[float]) -> None:
    found = GradientGrid.for_weights(1.0, 0.25, np.array(weights))
    assert found == GradientGrid.for_bounds(max(weights), 0.25 * max(weights))


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.0, 1.0], [3.0, 16.0], [0.5, 1.0], [1.0, 17.0], [0.25, 0.25]])
def test_hessians_that_are_counts_take_steps_of_one(weights: list[float]) -> None:
    found, plain = (
        GradientGrid.for_unit_hessians(3.0, np.array(weights)),
        GradientGrid.for_weights(3.0, 1.0, np.array(weights)),
    )
    are_counts = all(weight == round(weight) for weight in weights) and max(weights) <= MAX_COUNT_OF_A_ROW
    assert found == (replace(plain, hess_scale=1.0) if are_counts else plain)

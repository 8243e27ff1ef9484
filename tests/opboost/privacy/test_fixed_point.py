"""Fixed-point contributions: no norm grows, and the stated sensitivity covers every record."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.fixed_point import FixedPoint, Sensitivity, at_least_sqrt

numbers = st.floats(-10, 10)
anything = st.floats(allow_nan=True, allow_infinity=True)


def changes_of_one_record(encode, sensitivity: Sensitivity, rows: np.ndarray) -> bool:
    """Whether every row, encoded, is within the sensitivity, in integer arithmetic."""
    codes = encode(rows)
    l1 = max(sum(abs(int(code)) for code in row) for row in codes)
    squares = max(sum(int(code) ** 2 for code in row) for row in codes)
    return l1 <= sensitivity.l1 and squares <= sensitivity.l2_squared


@given(st.integers(0, 40), anything, st.floats(1.0, 100.0))
@settings(max_examples=300, deadline=None)
def test_a_code_is_the_clipped_value_moved_towards_zero(n_bits, value, bound):
    code = int(FixedPoint(n_bits).encode(np.array([value]), bound=bound)[0])
    if math.isnan(value):
        assert code == 0
    else:
        clipped = Fraction(min(max(value, -bound), bound))
        assert abs(Fraction(code, 2**n_bits)) <= abs(clipped)
        assert abs(clipped - Fraction(code, 2**n_bits)) < Fraction(1, 2**n_bits)


joint = st.none() | st.floats(0.26, 2.0)


@given(st.integers(2, 40), st.lists(st.tuples(anything, anything), min_size=1, max_size=5), joint, joint)
@settings(max_examples=200, deadline=None)
def test_one_record_never_moves_a_sum_by_more_than_the_stated_sensitivity(n_bits, rows, l1, l2):
    grid, bounds = FixedPoint(n_bits), np.array([1.0, 0.25])

    def encode(values):
        return grid.encode_rows(values, bounds=bounds, l1=l1, l2=l2)

    assert changes_of_one_record(encode, grid.sensitivity(bounds, l1=l1, l2=l2), np.array(rows))


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=20), st.floats(0.1, 1.7), st.integers(4, 40))
@settings(max_examples=100, deadline=None)
def test_two_half_sums_of_a_label_move_by_its_bound_together(labels, bound, n_bits):
    """A label y within +-m adds (m + y) / 2 to one sum and (m - y) / 2 to the other: m in all, not 2 m."""
    y = np.clip(labels, -bound, bound)
    grid, bounds = FixedPoint(n_bits), np.array([bound, bound])
    codes = grid.encode_rows(np.column_stack([bound + y, bound - y]) / 2, bounds=bounds, l1=bound)
    assert int(np.abs(codes).sum(axis=1).max()) <= grid.sensitivity(bounds, l1=bound).l1 <= bound * 2**n_bits


def test_rounding_away_from_zero_or_not_shortening_is_caught_by_the_same_comparison():
    grid, bounds = FixedPoint(4), np.array([1.0, 1.0])
    p = np.linspace(0, 2 * np.pi, 50)
    rows = np.column_stack([np.cos(p), np.sin(p)])
    sensitivity = grid.sensitivity(bounds, l2=1.0)
    assert changes_of_one_record(lambda v: grid.encode_rows(v, bounds=bounds, l2=1.0), sensitivity, rows)
    assert not changes_of_one_record(lambda v: np.sign(v) * np.ceil(np.abs(v) * 16 - 1e-9), sensitivity, rows)
    assert not changes_of_one_record(lambda v: np.rint(v * 16), sensitivity, rows)
    longer = rows * 1.2
    assert changes_of_one_record(lambda v: grid.encode_rows(v, bounds=bounds, l2=1.0), sensitivity, longer)
    assert not changes_of_one_record(
        lambda v: np.column_stack([grid.encode(c, bound=1.0) for c in v.T]), sensitivity, longer
    )


def test_logistic_gradients_and_hessians_keep_a_norm_of_one_together():
    p = np.linspace(0, 1, 1001)
    rows = np.concatenate([np.column_stack([p - y, p * (1 - p)]) for y in (0, 1)])
    grid, bounds = FixedPoint(20), np.array([1.0, 0.25])
    codes = grid.encode_rows(rows, bounds=bounds, l2=1.0)
    assert np.abs(grid.decode(codes) - rows).max() < 2 * grid.step
    sensitivity = grid.sensitivity(bounds, l2=1.0)
    assert sensitivity == Sensitivity(l1=2**20 + 2**18, l2_squared=2**40)
    assert sensitivity.l2 == 2.0**20


def test_without_a_joint_bound_the_norms_are_those_of_the_bounds():
    sensitivity = FixedPoint(3).sensitivity(np.array([0.7, 1.0]))
    assert sensitivity == Sensitivity(l1=5 + 8, l2_squared=25 + 64)
    assert sensitivity.l2 == pytest.approx(math.sqrt(89))


def test_sums_of_codes_are_exact_and_read_back():
    grid = FixedPoint(10)
    codes = grid.encode(np.array([0.5, -0.25, 0.1]), bound=1.0)
    assert codes.tolist() == [512, -256, 102]
    assert grid.decode(codes[:2].sum(keepdims=True)).tolist() == [0.25]
    assert grid.steps(2.5) == 2560


@given(st.integers(1, 10**30))
def test_the_root_of_a_square_is_not_below_it(square):
    root = at_least_sqrt(square)
    assert Fraction(root) ** 2 >= square
    assert root <= math.sqrt(square) * (1 + 1e-15)


@pytest.mark.parametrize("n_bits", [-1, 41, 1.5, True])
def test_a_grid_with_another_number_of_bits_is_refused(n_bits):
    with pytest.raises(ParameterError, match="between 0 and 40 bits"):
        FixedPoint(n_bits)


@pytest.mark.parametrize("bound", [0.0, -1.0, 1e-4, math.inf, math.nan, 2.0**50])
def test_a_bound_below_one_step_or_beyond_what_doubles_hold_is_refused(bound):
    with pytest.raises(ParameterError, match=r"steps?"):
        FixedPoint(10).encode(np.zeros(1), bound=bound)


@pytest.mark.parametrize(("l1", "l2_squared"), list(itertools.product([0, 2], [0, 5, -1])))
def test_norms_that_contradict_each_other_are_refused(l1, l2_squared):
    with pytest.raises(ParameterError, match="0 < l2 <= l1"):
        Sensitivity(l1=l1, l2_squared=l2_squared)

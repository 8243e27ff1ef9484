from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import Grid
from opboost.trees.splitting import BestCuts, GreedySplitter

GRID = Grid(2.0**20, 2.0**10)
AXES = HistogramAxes.from_bin_counts([2, 2])


def _choose(
    first: list[tuple[float, float]],
    second: list[tuple[float, float]] | None = None,
    *,
    reg_lambda: float = 0.0,
    gamma: float = 0.0,
    min_child_weight: float = 0.0,
    columns: tuple[int, ...] = (0, 1),
) -> BestCuts:
    """Choose for one node from the (g, h) of each column's two value bins and its missing bin."""
    sums = np.array([*first, *(second or first)]) * (GRID.grad_scale, GRID.hess_scale)
    histograms = np.rint(sums).astype(np.int64)[None]
    splitter = GreedySplitter(AXES, GRID, reg_lambda, gamma, min_child_weight)
    return splitter.choose(histograms[:, :3].sum(axis=1), histograms, np.array(columns, np.int64))


OPPOSITE = [(-2.0, 1.0), (2.0, 1.0), (0.0, 0.0)]
WEAKER = [(-1.0, 1.0), (1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize(("reg_lambda", "gain"), [(0.0, 8.0), (1.0, 4.0), (3.0, 2.0)])
def test_the_gain_is_that_of_both_children_less_that_of_the_node(reg_lambda: float, gain: float) -> None:
    best = _choose(OPPOSITE, reg_lambda=reg_lambda)
    assert best.gains.tolist() == [gain]
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, GRID.hess_scale]]


@pytest.mark.parametrize(("gamma", "is_worthwhile"), [(7.999, True), (8.0, True), (8.001, False)])
def test_a_split_needs_a_gain_of_at_least_gamma(gamma: float, is_worthwhile: bool) -> None:
    assert _choose(OPPOSITE, gamma=gamma).is_worthwhile.tolist() == [is_worthwhile]


@pytest.mark.parametrize(("grad", "is_worthwhile"), [(0.0, False), (0.0007, False), (0.00071, True), (0.001, True)])
def test_a_gain_of_rounding_size_is_no_reason_to_split(grad: float, is_worthwhile: bool) -> None:
    """The gain is twice the square, to be compared with 1e-6."""
    assert _choose([(-grad, 1.0), (grad, 1.0), (0.0, 0.0)]).is_worthwhile.tolist() == [is_worthwhile]


@pytest.mark.parametrize(("min_child_weight", "is_worthwhile"), [(0.999, True), (1.0, True), (1.001, False)])
@pytest.mark.parametrize("light", [0, 1])
def test_both_children_need_the_least_weight(light: int, min_child_weight: float, is_worthwhile: bool) -> None:
    column = [(-2.0, 5.0), (2.0, 5.0), (0.0, 0.0)]
    column[light] = (column[light][0], 1.0)
    assert _choose(column, min_child_weight=min_child_weight).is_worthwhile.tolist() == [is_worthwhile]


def test_a_child_without_weight_is_never_made() -> None:
    assert not _choose([(-2.0, 0.0), (2.0, 1.0), (0.0, 0.0)]).is_worthwhile.any()


@pytest.mark.parametrize(
    ("first", "second", "column"), [(WEAKER, OPPOSITE, 1), (OPPOSITE, WEAKER, 0), (OPPOSITE, OPPOSITE, 0)]
)
def test_the_best_column_wins_and_the_earlier_one_of_equals(
    first: list[tuple[float, float]], second: list[tuple[float, float]], column: int
) -> None:
    assert _choose(first, second).columns.tolist() == [column]


def test_only_the_given_columns_are_looked_at() -> None:
    assert _choose(OPPOSITE, WEAKER, columns=(1,)).columns.tolist() == [1]
    assert not _choose(OPPOSITE, WEAKER, columns=()).is_worthwhile.any()


def test_missing_against_present_is_a_cut_behind_the_last_bin() -> None:
    best = _choose([(-1.0, 1.0), (-1.0, 1.0), (2.0, 2.0)])
    assert (best.columns[0], best.cuts[0], best.missing_left[0]) == (0, 1, False)
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, 2 * GRID.hess_scale]]


def test_missing_rows_may_join_the_left_child() -> None:
    best = _choose([(-1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
    assert (best.cuts[0], best.missing_left[0]) == (0, True)
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, 2 * GRID.hess_scale]]


@pytest.mark.parametrize(
    ("grad", "hess", "reg_lambda", "value"),
    [(3.0, 2.0, 1.0, -1.0), (-3.0, 1.5, 0.0, 2.0), (3.0, 0.5, 1.0, 0.0), (3.0, 0.0, 1.0, 0.0), (0.0, 2.0, 1.0, 0.0)],
    ids=["newton step", "no regularisation", "too light", "empty", "balanced"],
)
def test_a_leaf_takes_the_newton_step_unless_it_is_too_light(
    grad: float, hess: float, reg_lambda: float, value: float
) -> None:
    totals = np.array([[grad * GRID.grad_scale, hess * GRID.hess_scale]]).astype(np.int64)
    assert NewtonLeaves(GRID, reg_lambda, 1.0).values(totals) == pytest.approx([value])


def test_an_empty_leaf_stays_at_zero_even_without_regularisation() -> None:
    assert NewtonLeaves(GRID, 0.0, 0.0).values(np.zeros((1, 2), np.int64)).tolist() == [0.0]

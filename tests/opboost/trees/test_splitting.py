from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.trees.constraints import Constraints, NodeLimits
from opboost.trees.losses import GradientGrid
from opboost.trees.splitting import BestCuts, Children, GreedySplitter, Splits

GRID = GradientGrid(2.0**20, 2.0**10)
AXES = HistogramAxes.from_bin_counts([2, 2])

pytestmark = pytest.mark.usefixtures("one_thread")


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
    histograms = np.rint(sums).astype(np.int64).T[None]
    none = Constraints.none(2)
    splitter = GreedySplitter(AXES, GRID, none, reg_lambda, gamma, min_child_weight, 4)
    limits = none.at_root(np.array(columns, np.int64))
    return splitter.choose(_children(histograms, limits))


def _children(histograms: np.ndarray, limits: NodeLimits) -> Children:
    """Nodes of which every histogram was asked for."""
    nothing = np.empty((0, *histograms.shape[1:]), np.int64)
    totals = np.ascontiguousarray(histograms[:, :, :3].sum(axis=2))
    return Children(totals, np.ascontiguousarray(histograms), nothing, np.arange(len(histograms)), limits)


OPPOSITE = [(-2.0, 1.0), (2.0, 1.0), (0.0, 0.0)]
WEAKER = [(-1.0, 1.0), (1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize(("reg_lambda", "gain"), [(0.0, 8.0), (1.0, 4.0), (3.0, 2.0)])
def test_the_gain_is_that_of_both_children_less_that_of_the_node(reg_lambda: float, gain: float) -> None:
    best = _choose(OPPOSITE, reg_lambda=reg_lambda)
    assert best.gains.tolist() == [gain]
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, GRID.hess_scale]]


@pytest.mark.parametrize(("gamma", "is_worthwhile"), [(7.999, True), (8.0, True), (8.001, False)])
def test_a_split_needs_a_gain_of_at_least_gamma(gamma: float, is_worthwhile: bool) -> None:
    assert len(_choose(OPPOSITE, gamma=gamma).worthwhile) == is_worthwhile


@pytest.mark.parametrize(("grad", "is_worthwhile"), [(0.0, False), (0.0007, False), (0.00071, True), (0.001, True)])
def test_a_gain_of_rounding_size_is_no_reason_to_split(grad: float, is_worthwhile: bool) -> None:
    """The gain is twice the square, to be compared with 1e-6."""
    assert len(_choose([(-grad, 1.0), (grad, 1.0), (0.0, 0.0)]).worthwhile) == is_worthwhile


@pytest.mark.parametrize(("min_child_weight", "is_worthwhile"), [(0.999, True), (1.0, True), (1.001, False)])
@pytest.mark.parametrize("light", [0, 1])
def test_both_children_need_the_least_weight(light: int, min_child_weight: float, is_worthwhile: bool) -> None:
    column = [(-2.0, 5.0), (2.0, 5.0), (0.0, 0.0)]
    column[light] = (column[light][0], 1.0)
    assert len(_choose(column, min_child_weight=min_child_weight).worthwhile) == is_worthwhile


def test_a_child_without_weight_is_never_made() -> None:
    assert len(_choose([(-2.0, 0.0), (2.0, 1.0), (0.0, 0.0)]).worthwhile) == 0


@pytest.mark.parametrize(
    ("first", "second", "column"), [(WEAKER, OPPOSITE, 1), (OPPOSITE, WEAKER, 0), (OPPOSITE, OPPOSITE, 0)]
)
def test_the_best_column_wins_and_the_earlier_one_of_equals(
    first: list[tuple[float, float]], second: list[tuple[float, float]], column: int
) -> None:
    assert _choose(first, second).columns.tolist() == [column]


def test_only_the_given_columns_are_looked_at() -> None:
    assert _choose(OPPOSITE, WEAKER, columns=(1,)).columns.tolist() == [1]
    assert len(_choose(OPPOSITE, WEAKER, columns=()).worthwhile) == 0


def test_missing_against_present_is_a_cut_behind_the_last_bin() -> None:
    best = _choose([(-1.0, 1.0), (-1.0, 1.0), (2.0, 2.0)])
    assert (best.columns[0], best.cuts[0], best.missing_left[0]) == (0, 1, False)
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, 2 * GRID.hess_scale]]


def test_missing_rows_may_join_the_left_child() -> None:
    best = _choose([(-1.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
    assert (best.cuts[0], best.missing_left[0]) == (0, True)
    assert best.left_sums.tolist() == [[-2 * GRID.grad_scale, 2 * GRID.hess_scale]]


def _of_categories(means: list[float], *, missing: float = 0.0, max_cat_to_onehot: int) -> tuple[list[list[bool]], int]:
    """Which bins of a column of categories, each of weight 1, go left in one node, and the number of listed ones."""
    axes = HistogramAxes.from_bin_counts([len(means)], [True])
    histogram = np.array([[*means, missing], [1.0] * len(means) + [float(missing != 0)]])
    histogram = np.rint(histogram * [[GRID.grad_scale], [GRID.hess_scale]]).astype(np.int64)[None]
    none = Constraints.none(1)
    splitter = GreedySplitter(axes, GRID, none, 1.0, 0.0, 0.0, max_cat_to_onehot)
    nothing = np.empty((0, *histogram.shape[1:]), np.int64)
    limits = none.at_root(np.zeros(1, np.int64))
    running = histogram.copy()
    children = Children(histogram.sum(axis=2), running, nothing, np.zeros(1, np.int64), limits)
    best, node = splitter.choose(children), np.zeros(1, np.int32)
    flags = np.zeros((1, len(means) + 1), np.bool_)
    splits = Splits(node, best.columns, best.cuts, best.missing_left, flags, node + 1, node + 2)
    listed = splitter.part_categories(splits, lambda place: running[place])[0]
    assert listed == tuple(np.flatnonzero(flags[0, :-1]).tolist())
    assert best.left_sums[0].tolist() == histogram[0][:, flags[0]].sum(axis=1).tolist()
    return flags.tolist(), len(listed)


@pytest.mark.parametrize(
    ("means", "missing", "onehot", "goes_left"),
    [
        ([4.0, -9.0, 4.0, -9.0, 4.0], 0.0, 4, [True, False, True, False, True, False]),
        ([4.0, -9.0, 4.0, -9.0, 4.0], 0.0, 5, [False, True, False, False, False, False]),
        ([4.0, -9.0, 4.0, -9.0, 4.0], 4.0, 4, [True, False, True, False, True, True]),
        ([4.0, -9.0, 4.0], -9.0, 4, [False, True, False, True]),
        ([4.0, -9.0, 4.0], 4.0, 4, [False, True, False, False]),
    ],
    ids=["a set", "one alone", "a set with the missing", "one alone with the missing", "missing with the others"],
)
def test_few_categories_are_told_from_the_others_one_by_one_and_many_as_sets(
    means: list[float], missing: float, onehot: int, goes_left: list[bool]
) -> None:
    found, _ = _of_categories(means, missing=missing, max_cat_to_onehot=onehot)
    assert found == [goes_left]

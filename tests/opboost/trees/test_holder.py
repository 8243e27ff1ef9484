from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import DataError
from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.holder import LocalHolder, RowHolder, SummedHolders
from opboost.trees.kernels.packing import BLOCK
from opboost.trees.losses import GradientGrid, Loss, Softmax, SquaredError
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

SQUARED = SquaredError()
GRID = GradientGrid(2.0**16, 2.0**16)
ROOT = np.zeros(1, np.int32)
SEEDS = st.integers(0, 2**32 - 1)

# Rows that an area of the table has at most, in bins of a byte.
AREA = 1 << 16

pytestmark = pytest.mark.usefixtures("one_thread")


def _table(n_rows: int, seed: int) -> BinnedTable:
    values = np.random.default_rng(seed).integers(0, [1, 4, 9], (n_rows, 3)) * 1.0
    values[values == 3] = np.nan
    return BinnedTable.of([bin_values(column, max_bin=256) for column in values.T])


def _holder(
    table: BinnedTable,
    labels: np.ndarray,
    rows: np.ndarray | slice = slice(None),
    *,
    loss: Loss = SQUARED,
    subsample: float = 1.0,
) -> LocalHolder:
    """A holder of some rows at scores of zero, every row of weight one."""
    mine = BinnedTable(np.ascontiguousarray(table.bins[:, rows]), table.cuts, table.axes)
    return LocalHolder(
        mine,
        labels[rows],
        np.ones(len(labels[rows])),
        loss=loss,
        grid=GRID,
        initial_scores=np.zeros(loss.n_outputs),
        subsample=subsample,
        rng=np.random.default_rng(0),
    )


def _splits(table: BinnedTable, *rows: tuple[int, int, int, bool, int, int]) -> Splits:
    """Splits on numbers: node, column, cut, way of missing, left and right child."""
    nodes, columns, cuts, missing_left, lefts, rights = zip(*rows, strict=True)
    goes_left = np.arange(table.axes.sizes.max()) <= np.array(cuts)[:, None]
    for k, column in enumerate(columns):
        goes_left[k, table.axes.n_value_bins(column)] = missing_left[k]
    ints = [np.array(part, np.int32) for part in (nodes, columns, cuts, lefts, rights)]
    return Splits(*ints[:3], np.array(missing_left), goes_left, *ints[3:])


def _histograms(holder: RowHolder, nodes: np.ndarray, table: BinnedTable) -> np.ndarray:
    out = np.full((len(nodes), 2, table.axes.n_bins), 77, np.int64)
    holder.write_histograms(nodes, out)
    return out


def _stump(left: float, right: float) -> Tree:
    """A tree that splits node 0 into leaves 1 and 2."""
    ints = [np.array(part, np.int32) for part in ([1, -1, -1], [1, 0, 0], [2, 0, 0])]
    return Tree(
        ints[0],
        np.zeros(3),
        np.zeros(3, np.bool_),
        ints[1],
        ints[2],
        np.array([0, left, right]),
        np.zeros(3),
        np.zeros(3),
    )


def _row_gradients(holder: RowHolder, n_rows: int) -> np.ndarray:
    """Gradients row by row, read from a histogram in which every row has a bin of its own."""
    return _histograms(holder, ROOT, _one_bin_per_row(n_rows))[0, 0, :n_rows] / GRID.grad_scale


def _one_bin_per_row(n_rows: int) -> BinnedTable:
    return BinnedTable.of([bin_values(np.arange(n_rows) * 1.0, max_bin=1000)])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), SEEDS)
def test_sums_are_those_of_the_rows_in_each_node(n_rows: int, seed: int) -> None:
    table, labels = _table(n_rows, seed), np.random.default_rng(seed).integers(-9, 9, n_rows) * 1.0
    holder = _holder(table, labels)
    holder.start_tree(0)
    holder.divide(_splits(table, (0, 1, 0, True, 1, 2)))
    holder.divide(_splits(table, (1, 2, 3, False, 3, 4), (2, 2, 1, True, 5, 6)))
    first, second = table.bins[1], table.bins[2]
    left = (first <= 0) | (first == table.axes.n_value_bins(1))
    is_missing = second == table.axes.n_value_bins(2)
    is_low = (second <= 3) & ~is_missing
    members = [left & is_low, left & ~is_low, ~left & ((second <= 1) | is_missing)]
    nodes = np.array([3, 4, 5], np.int32)
    expected = [[-labels[rows].sum() * GRID.grad_scale, rows.sum() * GRID.hess_scale] for rows in members]
    np.testing.assert_array_equal(holder.totals(nodes), expected)
    histograms = _histograms(holder, nodes, table)
    for column in range(3):
        own = slice(table.axes.offsets[column], table.axes.offsets[column + 1])
        np.testing.assert_array_equal(histograms[:, :, own].sum(axis=2), expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), SEEDS)
def test_several_holders_answer_as_one_would(n_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, labels, owner = _table(n_rows, seed), rng.normal(size=n_rows), rng.integers(0, 3, n_rows)
    whole = _holder(table, labels)
    parts = SummedHolders([_holder(table, labels, np.flatnonzero(owner == k)) for k in range(3)])
    for round_ in range(2):
        splits = _splits(table, (0, round_ + 1, 0, bool(round_), 1, 2))
        for holder in (whole, parts):
            holder.start_tree(0)
            holder.divide(splits)
        nodes = np.arange(3, dtype=np.int32)
        np.testing.assert_array_equal(parts.totals(nodes), whole.totals(nodes))
        np.testing.assert_array_equal(_histograms(parts, nodes, table), _histograms(whole, nodes, table))
        for holder in (whole, parts):
            holder.finish_tree(_stump(0.375, -0.25))


@pytest.mark.parametrize("n_rows", [n + extra for n in (BLOCK, AREA) for extra in (-1, 0, 1)] + [2 * AREA + 100])
def test_a_node_of_several_areas_is_divided_and_summed_whole(n_rows: int) -> None:
    labels = np.arange(n_rows) % 7 * 1.0
    table = BinnedTable.of([bin_values(labels, max_bin=256)])
    holder = _holder(table, labels)
    holder.start_tree(0)
    holder.divide(_splits(table, (0, 0, 2, False, 1, 2)))
    lefts = labels <= 2
    expected = [[-labels[rows].sum() * GRID.grad_scale, rows.sum() * GRID.hess_scale] for rows in (lefts, ~lefts)]
    np.testing.assert_array_equal(holder.totals(np.array([1, 2], np.int32)), expected)


def test_a_finished_tree_moves_the_scores_of_its_leaves_rows() -> None:
    labels = np.array([1.0, 2.0, 4.0])
    holder = _holder(_one_bin_per_row(3), labels)
    holder.start_tree(0)
    holder.divide(_splits(_one_bin_per_row(3), (0, 0, 0, False, 1, 2)))
    holder.finish_tree(_stump(5.0, 10.0))
    holder.start_tree(0)
    assert _row_gradients(holder, 3).tolist() == [5 - 1, 10 - 2, 10 - 4]


def test_the_trees_of_one_round_see_the_scores_from_before_it() -> None:
    labels = np.array([0.0, 1.0, 2.0])
    holder = _holder(_one_bin_per_row(3), labels, loss=Softmax(3))
    holder.start_tree(0)
    holder.finish_tree(_leaf(5.0))
    holder.start_tree(1)
    np.testing.assert_allclose(_row_gradients(holder, 3), [1 / 3, -2 / 3, 1 / 3], atol=0.5 / GRID.grad_scale)
    holder.start_tree(0)
    assert (_row_gradients(holder, 3)[1:] > 0.9).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.booleans(), SEEDS)
def test_leaves_reach_their_rows_whether_somebody_asked_for_them_or_not(n_rows: int, is_asked: bool, seed: int) -> None:
    """A tree of three levels whose last splits nobody asks about, and one whose left branch ends early."""
    table = _table(n_rows, seed)
    holder = _holder(table, np.zeros(n_rows))
    holder.start_tree(0)
    holder.divide(_splits(table, (0, 2, 4, False, 1, 2)))
    holder.divide(_splits(table, (2, 1, 1, True, 3, 4)))
    if is_asked:
        holder.totals(np.array([3, 4], np.int32))
    ints = [np.array(part, np.int32) for part in ([2, -1, 1, -1, -1], [1, 0, 3, 0, 0], [2, 0, 4, 0, 0])]
    holder.finish_tree(
        Tree(
            ints[0],
            np.zeros(5),
            np.zeros(5, np.bool_),
            ints[1],
            ints[2],
            np.array([0, 1.0, 0, 2.0, 3.0]),
            np.zeros(5),
            np.zeros(5),
        )
    )
    holder.start_tree(0)
    first, second = table.bins[2], table.bins[1]
    goes_left = (second <= 1) | (second == table.axes.n_value_bins(1))
    is_left = (first <= 4) & (first != table.axes.n_value_bins(2))
    scores = np.where(is_left, 1.0, np.where(goes_left, 2.0, 3.0))
    for column in range(3):
        own = slice(table.axes.offsets[column], table.axes.offsets[column + 1])
        expected = np.bincount(table.bins[column], scores, table.axes.sizes[column]) * GRID.grad_scale
        np.testing.assert_array_equal(_histograms(holder, ROOT, table)[0, 0, own], expected)


def _leaf(value: float) -> Tree:
    return Tree(
        np.array([-1], np.int32),
        np.zeros(1),
        np.zeros(1, np.bool_),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.array([value]),
        np.zeros(1),
        np.zeros(1),
    )


def test_rows_left_out_of_a_round_count_for_nothing_but_are_scored() -> None:
    labels = np.full(200, 8.0)
    holder = _holder(_one_bin_per_row(200), labels, subsample=0.5)
    holder.start_tree(0)
    in_round = _row_gradients(holder, 200) != 0
    np.testing.assert_array_equal(holder.totals(ROOT)[0] / GRID.grad_scale, [-8.0 * in_round.sum(), in_round.sum()])
    holder.finish_tree(_leaf(3.0))
    holder.start_tree(0)
    in_next = _row_gradients(holder, 200) != 0
    assert set(_row_gradients(holder, 200)[in_next]) == {3.0 - 8.0}
    assert (in_next & ~in_round).any()


def test_about_the_wanted_share_of_rows_is_sampled() -> None:
    """10,000 rows at a share of 0.3: six standard deviations are 0.0275, a false alarm in 5e8 seeds."""
    holder = _holder(_table(10_000, 0), np.ones(10_000), subsample=0.3)
    holder.start_tree(0)
    share = holder.totals(ROOT)[0, 1] / GRID.hess_scale / 10_000
    assert abs(share - 0.3) < 0.0275


@pytest.mark.parametrize("loss", [SQUARED, Softmax(2)], ids=lambda loss: loss.name)
def test_every_row_is_sampled_when_nothing_is_said(loss: Loss) -> None:
    holder = _holder(_one_bin_per_row(50), np.ones(50), loss=loss)
    holder.start_tree(0)
    assert (_row_gradients(holder, 50) != 0).all()


@pytest.mark.parametrize(("n_labels", "n_weights"), [(3, 4), (4, 3), (5, 5)])
def test_labels_and_weights_of_another_length_are_refused(n_labels: int, n_weights: int) -> None:
    with pytest.raises(DataError, match="4 rows need as many labels and weights"):
        LocalHolder(
            _one_bin_per_row(4),
            np.zeros(n_labels),
            np.ones(n_weights),
            loss=SQUARED,
            grid=GRID,
            initial_scores=np.zeros(1),
            rng=np.random.default_rng(0),
        )

"""Sorted rows: every node's rows lie side by side, and the scores are those of the leaves that they reach."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.trees.complete import Cuts, splits_of, tree_of
from opboost.trees.rows import SortedRows, _areas, add_tree
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

pytestmark = pytest.mark.usefixtures("one_thread")

AXES = HistogramAxes.from_bin_counts([8, 5], [False, True])


@pytest.fixture
def bins() -> np.ndarray:
    draw = np.random.default_rng(3)
    return np.stack([draw.integers(0, 9, 400), draw.integers(0, 6, 400)]).astype(np.uint8)


def levels() -> list[Splits]:
    """The root by numbers, its left child by a category, its right child by numbers again."""
    root = Cuts(np.array([0], np.int32), np.array([3], np.int32), np.array([True]))
    below = Cuts(np.array([1, 0], np.int32), np.array([2, 5], np.int32), np.array([False, False]))
    return [
        splits_of(np.array([0], np.int32), root, AXES, first_child=1),
        splits_of(np.array([1, 2], np.int32), below, AXES, first_child=3),
    ]


def leaves(bins: np.ndarray) -> np.ndarray:
    left = (bins[0] <= 3) | (bins[0] == 8)
    return np.where(left, np.where(bins[1] == 2, 3, 4), np.where(bins[0] <= 5, 5, 6))


def check_nodes(rows: SortedRows, bins: np.ndarray) -> None:
    """Every leaf has its own rows in the order of the table, and their gradients, which are their numbers."""
    for node in (3, 4, 5, 6):
        numbers, gradients = rows.of(node)
        np.testing.assert_array_equal(numbers, np.flatnonzero(leaves(bins) == node))
        np.testing.assert_array_equal(gradients, numbers)


def test_a_nodes_rows_lie_side_by_side_with_their_gradients(bins: np.ndarray) -> None:
    rows = SortedRows(bins, np.zeros((1, 400)))
    rows.start_tree()
    rows.gradients[:] = np.arange(400)
    for splits in levels():
        rows.divide(splits)
    check_nodes(rows, bins)
    assert rows.totals(np.array([3], np.int32))[0, 0] == np.flatnonzero(leaves(bins) == 3).sum()


@pytest.mark.usefixtures("every_thread")
def test_areas_of_a_large_table_keep_their_rows_in_order() -> None:
    """More rows than one area takes, and more than one for each thread; the same nodes and scores as by selection."""
    draw = np.random.default_rng(5)
    bins = np.stack([draw.integers(0, 9, 150_001), draw.integers(0, 6, 150_001)]).astype(np.uint8)
    rows = SortedRows(bins, np.zeros((1, 150_001)))
    for _ in range(2):
        rows.start_tree()
        rows.gradients[:] = np.arange(150_001)
        for splits in levels():
            rows.divide(splits)
        check_nodes(rows, bins)
        rows.finish_tree(tree_of(levels(), np.array([0, 0, 0, 1.0, 2.0, 4.0, 8.0]), AXES), 0)
    np.testing.assert_array_equal(rows.scores[0], 2 * np.array([0, 0, 0, 1.0, 2.0, 4.0, 8.0])[leaves(bins)])


@pytest.mark.parametrize("bin_bytes", [1, 2])
@pytest.mark.parametrize("n_threads", [1, 2, 3, 16])
@pytest.mark.parametrize("n_rows", [0, 1, 511, 1024, 65_536, 65_537, 1_000_003])
def test_areas_cover_the_table_and_are_as_many_for_each_thread(n_rows: int, n_threads: int, bin_bytes: int) -> None:
    areas = _areas(n_rows, bin_bytes, n_threads)
    sizes = np.diff(areas)
    assert (areas[0], areas[-1]) == (0, n_rows)
    assert sizes.max() * bin_bytes <= 65_536
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) % n_threads == 0 or n_rows // len(sizes) < 1024


def test_scores_are_those_of_the_leaves(bins: np.ndarray) -> None:
    values = np.array([0, 0, 0, 1.0, 2.0, 4.0, 8.0])
    rows = SortedRows(bins, np.zeros((1, 400)))
    rows.start_tree()
    for splits in levels():
        rows.divide(splits)
    rows.finish_tree(tree_of(levels(), values, AXES), 0)
    np.testing.assert_array_equal(rows.scores[0], values[leaves(bins)])


def test_a_copy_is_divided_on_its_own(bins: np.ndarray) -> None:
    rows = SortedRows(bins, np.zeros((1, 400)))
    rows.start_tree()
    twin = rows.copied(np.ones((1, 400)))
    rows.divide(levels()[0])
    assert len(rows.of(1)[0]) < 400
    assert twin.of(0)[0].tolist() == list(range(400))


def test_threads_that_there_was_no_room_for_take_none(bins: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SortedRows(bins, np.zeros((1, 400)))
    monkeypatch.setattr("opboost.trees.rows.n_threads", lambda: 7)
    rows.start_tree()
    rows.gradients[:] = np.arange(400)
    for splits in levels():
        rows.divide(splits)
    check_nodes(rows, bins)


def random_tree(draw: np.random.Generator, n_splits: int) -> Tree:
    """Leaves of a root split again and again; cuts from before the first bin up to the last."""
    n_nodes = 2 * n_splits + 1
    columns, thresholds = np.full(n_nodes, -1, np.int32), np.zeros(n_nodes)
    lefts, missing_left = np.zeros(n_nodes, np.int32), draw.random(n_nodes) < 0.5
    categories = {}
    for k in range(n_splits):
        node = int(draw.choice(np.flatnonzero(columns[: 2 * k + 1] < 0)))
        columns[node], lefts[node] = draw.integers(0, 2), 2 * k + 1
        if columns[node] == 0:
            thresholds[node] = draw.integers(-1, 8)
        else:
            chosen = draw.permutation(5)[: draw.integers(1, 5)].tolist()
            thresholds[node], categories[node] = chosen[0], tuple(sorted(chosen))
    is_leaf, some = columns < 0, draw.random(n_nodes)
    rights = np.where(is_leaf, 0, lefts + 1).astype(np.int32)
    values = np.where(is_leaf, draw.normal(size=n_nodes), 0.0)
    return Tree(columns, thresholds, missing_left, lefts, rights, values, some, some, categories)


def value_of(tree: Tree, bins: np.ndarray) -> float:
    node = 0
    while tree.columns[node] >= 0:
        column = tree.columns[node]
        bin_, is_missing = bins[column], bins[column] == AXES.sizes[column] - 1
        is_left = bin_ in tree.left_categories[node] if column else bin_ <= tree.thresholds[node]
        node = (tree.lefts if (tree.missing_left[node] if is_missing else is_left) else tree.rights)[node]
    return float(tree.values[node])


@pytest.mark.parametrize("n_splits", [0, 1, 7, 40, 200])
def test_a_finished_tree_adds_to_every_row_the_value_of_its_leaf(n_splits: int) -> None:
    draw = np.random.default_rng(n_splits)
    bins = np.stack([draw.integers(0, 9, 300), draw.integers(0, 6, 300)]).astype(np.uint8)
    tree, scores = random_tree(draw, n_splits), draw.random(300)
    expected = scores + [value_of(tree, row) for row in bins.T]
    add_tree(scores, bins, AXES, tree)
    np.testing.assert_array_equal(scores, expected)

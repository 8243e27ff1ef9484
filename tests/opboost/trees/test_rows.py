"""Sorted rows: every node's rows lie side by side, and the scores are those of the leaves that they reach."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.trees.complete import Cuts, splits_of, tree_of
from opboost.trees.rows import SortedRows
from opboost.trees.splitting import Splits

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


def test_a_nodes_rows_lie_side_by_side_with_their_gradients(bins: np.ndarray) -> None:
    rows = SortedRows(bins, np.zeros((1, 400)), has_gradients=True)
    rows.start_tree()
    rows.gradients[:] = np.arange(400)
    for splits in levels():
        rows.divide(splits)
    begins, ends = rows.of(np.array([3, 4, 5, 6]))
    for node, begin, end in zip((3, 4, 5, 6), begins, ends, strict=True):
        np.testing.assert_array_equal(np.sort(rows.numbers[begin:end]), np.flatnonzero(leaves(bins) == node))
        np.testing.assert_array_equal(rows.gradients[begin:end], rows.numbers[begin:end])
    assert rows.totals(np.array([3], np.int32))[0, 0] == np.flatnonzero(leaves(bins) == 3).sum()


@pytest.mark.parametrize("grown_before", [False, True])
def test_scores_are_those_of_the_leaves(bins: np.ndarray, grown_before: bool) -> None:
    values = np.array([0, 0, 0, 1.0, 2.0, 4.0, 8.0])
    tree = tree_of(levels(), values, AXES)
    rows = SortedRows(bins, np.zeros((1, 400)), has_gradients=False)
    rows.start_tree()
    if grown_before:
        rows.add_tree(tree, 0, AXES)
    else:
        for splits in levels():
            rows.divide(splits)
        rows.finish_tree(tree, 0)
    np.testing.assert_array_equal(rows.scores[0], values[leaves(bins)])


def test_a_copy_is_divided_on_its_own(bins: np.ndarray) -> None:
    rows = SortedRows(bins, np.zeros((1, 400)), has_gradients=False)
    rows.start_tree()
    twin = rows.copied(np.ones((1, 400)))
    rows.divide(levels()[0])
    rows.of(np.array([1]))
    assert twin.numbers.tolist() == list(range(400))

"""Path-dependent Shapley values: the edges' shares, and the sum over all orders of columns by brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from opboost.trees.flat_trees import FlatTrees
from opboost.trees.kernels.shapley import link_edges
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree

pytestmark = pytest.mark.usefixtures("one_thread")

# Column 0 at 0, its left child column 1 at 0, whose left child asks column 0 again.
TREE = Tree(
    columns=np.array([0, 1, -1, 0, -1, -1, -1], np.int32),
    thresholds=np.array([0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0]),
    missing_left=np.zeros(7, np.bool_),
    lefts=np.array([1, 3, 0, 5, 0, 0, 0], np.int32),
    rights=np.array([2, 4, 0, 6, 0, 0, 0], np.int32),
    values=np.array([0.0, 0.0, 7.0, 0.0, -2.0, 3.0, 11.0]),
    gains=np.zeros(7),
    covers=np.array([16.0, 10.0, 6.0, 8.0, 2.0, 2.0, 6.0]),
)
MODEL = Ensemble((TREE,), np.zeros(1), SquaredError(), (Feature("a"), Feature("b")))


def edges(flat: FlatTrees) -> tuple[np.ndarray, ...]:
    n = len(flat.lefts)
    depths, nearest = np.zeros((2, n), np.int32)
    shares, above, reached = np.ones((2, n)), np.ones(n), np.ones(n)
    most = link_edges(
        flat.roots, flat.columns, flat.lefts, flat.covers, np.arange(2), depths, nearest, shares, above, reached
    )
    return depths, nearest, shares, above, reached, np.array(most)


def test_edges_know_their_shares_and_the_next_edge_of_the_same_column() -> None:
    depths, nearest, shares, above, reached, most = edges(MODEL.flat)
    assert depths.tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert nearest[1:].tolist() == [0, 0, 0, 0, 1, 1]
    assert shares[0, 1:].tolist() == [0.625, 0.375, 0.8, 0.2, 0.25, 0.75]
    assert shares[1, 5] == above[5] * 0.25 == 0.625 * 0.25
    assert reached[6] == pytest.approx(6 / 16)
    assert most == 2


def value(row: np.ndarray, known: set[int], node: int = 0) -> float:
    """What the tree says of a row of which these columns are known, and the others as often as they occur."""
    left, right = TREE.lefts[node], TREE.rights[node]
    if left == 0:
        return float(TREE.values[node])
    if (column := int(TREE.columns[node])) in known:
        return value(row, known, int(left if row[column] <= TREE.thresholds[node] else right))
    parts = [TREE.covers[child] * value(row, known, int(child)) for child in (left, right)]
    return sum(parts) / TREE.covers[node]


def test_contributions_are_means_over_all_orders_of_columns() -> None:
    rows = np.array([[a, b] for a in (-2.0, -0.5, 1.0) for b in (-1.0, 1.0)])
    expected = [[0.0, 0.0, value(row, set())] for row in rows]
    for found, row in zip(expected, rows, strict=True):
        for order in permutations(range(2)):
            for k, column in enumerate(order):
                before = set(order[:k])
                found[column] += (value(row, before | {column}) - value(row, before)) / 2
    np.testing.assert_allclose(MODEL.contributions(rows)[:, 0], expected, atol=1e-12)

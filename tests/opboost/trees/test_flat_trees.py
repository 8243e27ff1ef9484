"""All trees in one set of arrays: siblings side by side, and every row in the leaf that a walk by hand reaches."""

from __future__ import annotations

import math

import numpy as np

from opboost.trees.flat_trees import flatten
from opboost.trees.tree import Tree

# Column 0 by its categories 0 and 2; to their right column 1 at 0.5, whose children lie apart.
TREE = Tree(
    columns=np.array([0, 1, -1, -1, -1], np.int32),
    thresholds=np.array([0.0, 0.5, 0.0, 0.0, 0.0]),
    missing_left=np.array([False, True, False, False, False]),
    lefts=np.array([2, 4, 0, 0, 0], np.int32),
    rights=np.array([1, 3, 0, 0, 0], np.int32),
    values=np.array([0.0, 0.0, 1.0, 2.0, 3.0]),
    gains=np.zeros(5),
    covers=np.array([9.0, 5.0, 4.0, 3.0, 2.0]),
    left_categories={0: (0, 2)},
)
LEAF = Tree(
    columns=np.array([-1], np.int32),
    thresholds=np.zeros(1),
    missing_left=np.zeros(1, np.bool_),
    lefts=np.zeros(1, np.int32),
    rights=np.zeros(1, np.int32),
    values=np.ones(1),
    gains=np.zeros(1),
    covers=np.ones(1),
)


def by_hand(category: float, number: float) -> float:
    if category in (0, 2):
        return 1.0
    return 3.0 if math.isnan(number) or number <= 0.5 else 2.0


def test_every_row_reaches_its_leaf() -> None:
    rows = np.array([[c, x] for c in (0, 1, 2, 3, 0.5, -1, math.nan) for x in (0.5, 0.6, math.nan)])
    flat = flatten([TREE, TREE.scaled(2.0)], n_outputs=2)
    nodes = flat.leaves(rows) + flat.roots
    expected = np.array([by_hand(*row) for row in rows])
    np.testing.assert_array_equal(flat.values[nodes], np.stack([expected, 2 * expected], axis=1))
    assert flat.is_leaf[nodes].all()


def test_siblings_lie_side_by_side_and_leaves_lead_to_themselves() -> None:
    flat = flatten([TREE], n_outputs=1)
    inner = np.flatnonzero(~flat.is_leaf)
    assert flat.lefts.tolist() == [1, 1, 3, 3, 4]
    assert inner.tolist() == [0, 2]
    assert flat.covers.tolist() == [9.0, 4.0, 5.0, 2.0, 3.0]
    assert flat.depths.tolist() == [2]


def test_nodes_know_the_output_of_their_tree() -> None:
    assert flatten([LEAF, TREE, LEAF], n_outputs=2).node_outputs.tolist() == [0, *[1] * 5, 0]

"""Covers: a node has as many rows as its children, a leaf those that it scores, and predictions stay."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opboost.covers import with_covers
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree

# Column 0 at 0.5; left of it column 1 at 0.3.
TREE = Tree(
    columns=np.array([0, 1, -1, -1, -1], np.int32),
    thresholds=np.array([0.5, 0.3, 0, 0, 0]),
    missing_left=np.array([False, True, False, False, False]),
    lefts=np.array([1, 3, 0, 0, 0], np.int32),
    rights=np.array([2, 4, 0, 0, 0], np.int32),
    values=np.array([0, 0, 3.0, 1.0, 2.0]),
    gains=np.zeros(5),
    covers=np.zeros(5),
)
ENSEMBLE = Ensemble(
    (TREE, TREE), np.zeros(1), SquaredError(), (Feature("a", None, None, False), Feature("b", None, None, False))
)
CELLS = st.one_of(st.floats(0, 1), st.just(float("nan")))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=30))
def test_covers_are_counts_of_rows(cells: list[tuple[float, float]]) -> None:
    rows = np.array(cells)
    found = with_covers(ENSEMBLE, rows)
    scores = Ensemble((TREE,), np.zeros(1), SquaredError(), ENSEMBLE.features).predict(rows)
    for tree in found.trees:
        assert tree.covers[0] == len(rows)
        for node in np.flatnonzero(~tree.is_leaf):
            assert tree.covers[node] == tree.covers[tree.lefts[node]] + tree.covers[tree.rights[node]]
        for node in np.flatnonzero(tree.is_leaf):
            assert tree.covers[node] == (scores == tree.values[node]).sum()
    np.testing.assert_array_equal(found.predict(rows), ENSEMBLE.predict(rows))
    assert not TREE.covers.any()

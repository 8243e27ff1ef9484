"""Trees on noisy sums: a child cuts within what its ancestors have left to it."""

from __future__ import annotations

import numpy as np
import pytest

from opboost import rng
from opboost.horizontal.federated.training import train
from opboost.horizontal.federated.weight_updates import weight_update
from opboost.horizontal.splits.split_candidates import uniform_candidates
from tests.support.federated_rows import LEAF, choices, client, data, trained

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_left_child_keeps_the_bin_of_its_parents_cut():
    """Trap 8: without noise, children's sums add up to what the rows say, for every depth of cuts on one column."""
    X, y = data(400)
    X = np.nan_to_num(X[:, :1], nan=0.5)
    columns = uniform_candidates([(0.0, 1.0)], 8)
    update, chosen = weight_update("newton", is_classification=True), choices("hist", n_trees=1, max_depth=3)
    trained_ = train(
        client(X, y, update, chosen, columns),
        columns,
        chosen,
        update=update,
        leaf=LEAF,
        multiplier=0.0,
        rng=rng.seeded(0),
    )
    tree = trained_.trees[0]
    assert tree.depth == 3
    nodes = np.zeros(len(y), np.int64)
    for _ in range(3):
        is_left = X[:, 0] <= tree.thresholds[nodes]
        nodes = np.where(tree.is_leaf[nodes], nodes, np.where(is_left, tree.lefts[nodes], tree.rights[nodes]))
    for leaf in np.flatnonzero(tree.is_leaf):
        inside = nodes == leaf
        grad, hess = (0.5 - y[inside]).sum(), 0.25 * inside.sum()
        expected = -0.3 * np.clip(grad / (hess + 1), -2, 2) if inside.any() else 0.0
        assert tree.values[leaf] == pytest.approx(expected, abs=1e-5)


def test_a_column_is_cut_only_where_its_ancestors_left_something():
    for split in ("hist", "pr", "tr"):
        for tree in trained(choices(split, max_depth=4), multiplier=3.0).trees:
            seen = {0: {}}
            for node in np.flatnonzero(~tree.is_leaf):
                limits = seen[int(node)]
                column, cut = int(tree.columns[node]), float(tree.thresholds[node])
                low, high = limits.get(column, (-1.0, 2.0))
                assert low < cut < high
                seen[int(tree.lefts[node])] = limits | {column: (low, cut)}
                seen[int(tree.rights[node])] = limits | {column: (cut, high)}

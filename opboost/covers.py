"""Covers counted on rows, for models that were saved without statistics or trained by a recipe that keeps none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble, Tree


def with_covers(ensemble: Ensemble, rows: Values) -> Ensemble:
    """The ensemble with the number of rows that reach each node as its cover.

    Parameters
    ----------
    ensemble : Ensemble
    rows : ndarray of float64, shape (n_rows, n_features)
    """
    return replace(ensemble, trees=tuple(_counted(tree, ensemble, rows) for tree in ensemble.trees))


def _counted(tree: Tree, ensemble: Ensemble, rows: Values) -> Tree:
    numbered = replace(tree, values=np.arange(tree.n_nodes, dtype=np.float64))
    leaves = Ensemble((numbered,), np.zeros(1), SquaredError(), ensemble.features).scores(rows)[:, 0]
    covers = np.bincount(leaves.astype(np.int64), minlength=tree.n_nodes).astype(np.float64)
    for node in np.flatnonzero(~tree.is_leaf)[::-1]:
        covers[node] = covers[tree.lefts[node]] + covers[tree.rights[node]]
    return replace(tree, covers=covers)

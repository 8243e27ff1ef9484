"""Leaf values of grown trees computed anew, on other labels than those that the trees were grown on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from opboost.arrays import HistogramAxes, Nodes, Values
from opboost.trees.holder import LocalHolder
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree


def refit_leaves(
    trees: Sequence[Tree],
    holder: LocalHolder,
    *,
    leaves: NewtonLeaves,
    axes: HistogramAxes,
    bounds: tuple[Values, Values],
    learning_rate: float,
    n_outputs: int,
) -> list[Tree]:
    """Replay the divisions of trees on a holder's rows, tree by tree, and take the leaves' values from its sums.

    Parameters
    ----------
    trees : sequence of Tree
        In bins, round by round, as they were grown.
    holder : LocalHolder
        Of the same rows in the same order; nothing was trained on it.
    leaves : NewtonLeaves
    axes : HistogramAxes
    bounds : tuple of ndarray
        Of all leaf values, before the learning rate.
    learning_rate : float
    n_outputs : int
        Trees per round.
    """
    fitted = []
    for number, tree in enumerate(trees):
        holder.start_tree(number % n_outputs)
        for splits in _divisions(tree, axes):
            holder.divide(splits)
        ends = np.flatnonzero(tree.is_leaf).astype(np.int32)
        values = np.zeros(tree.n_nodes)
        values[ends] = learning_rate * leaves.values(holder.totals(ends), *bounds)
        fitted.append(holder.with_quantiles(replace(tree, values=values), learning_rate))
        holder.finish_tree(fitted[-1])
    return fitted


def _divisions(tree: Tree, axes: HistogramAxes) -> Iterator[Splits]:
    """The splits of a tree, one at a time, in the order in which their children are numbered."""
    inner = np.flatnonzero(~tree.is_leaf)
    for node in inner[np.argsort(tree.lefts[inner])].tolist():
        size = int(axes.sizes[tree.columns[node]])
        goes_left = np.zeros((1, axes.largest), np.bool_)
        if node in tree.left_categories:
            goes_left[0, list(tree.left_categories[node])] = True
        else:
            goes_left[0, : max(0, min(int(tree.thresholds[node]) + 1, size - 1))] = True
        goes_left[0, size - 1] = tree.missing_left[node]
        at: Nodes = np.array([node], np.int32)
        cuts = tree.thresholds[at].astype(np.int32)
        yield Splits(at, tree.columns[at], cuts, tree.missing_left[at], goes_left, tree.lefts[at], tree.rights[at])

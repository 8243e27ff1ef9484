"""Grow one tree, level by level, by asking a row holder for sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums
from opboost.trees.holder import RowHolder
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.splitting import BestCuts, GreedySplitter, Splits
from opboost.trees.tree import Tree


@dataclass(slots=True)
class _Draft:
    """A tree under construction: nodes are numbered as they arise, level by level."""

    totals: list[Sums]
    splits: list[Splits] = field(default_factory=list)
    gains: list[NDArray[np.float64]] = field(default_factory=list)
    n_nodes: int = 1

    def split(self, nodes: Nodes, best: BestCuts, chosen: NDArray[np.intp]) -> Splits:
        """Number the children of the chosen nodes, left before right."""
        lefts = (self.n_nodes + 2 * np.arange(len(chosen))).astype(np.int32)
        splits = Splits(
            nodes[chosen],
            best.columns[chosen],
            best.cuts[chosen],
            best.missing_left[chosen],
            lefts,
            lefts + np.int32(1),
        )
        self.n_nodes += 2 * len(chosen)
        self.splits.append(splits)
        self.gains.append(best.gains[chosen])
        return splits

    def finish(self, leaves: NewtonLeaves) -> Tree:
        """Give every node without a split its value."""
        columns, cuts = np.full(self.n_nodes, -1, np.int32), np.zeros(self.n_nodes)
        lefts, rights = np.zeros(self.n_nodes, np.int32), np.zeros(self.n_nodes, np.int32)
        missing_left, gains = np.zeros(self.n_nodes, np.bool_), np.zeros(self.n_nodes)
        for splits, level_gains in zip(self.splits, self.gains, strict=True):
            columns[splits.nodes], cuts[splits.nodes] = splits.columns, splits.cuts
            lefts[splits.nodes], rights[splits.nodes] = splits.lefts, splits.rights
            missing_left[splits.nodes], gains[splits.nodes] = splits.missing_left, level_gains
        totals = np.concatenate(self.totals)
        values = np.where(columns < 0, leaves.values(totals), 0.0)
        return Tree(columns, cuts, missing_left, lefts, rights, values, gains, totals[:, 1] / leaves.grid.hess_scale)


def grow_tree(
    holder: RowHolder,
    *,
    splitter: GreedySplitter,
    leaves: NewtonLeaves,
    max_depth: int,
    columns: NDArray[np.int64],
) -> Tree:
    """Grow one tree on the holder's current gradients.

    Of every two siblings only the lighter one's histogram is asked for; the other is the parent's less that one,
    exactly, since sums are integers.

    Parameters
    ----------
    holder : RowHolder
        After ``start_tree``.
    splitter : GreedySplitter
    leaves : NewtonLeaves
    max_depth : int
    columns : ndarray of int64
        The columns that this tree may split on.
    """
    nodes = np.zeros(1, dtype=np.int32)
    totals = holder.totals(nodes)
    draft = _Draft([totals])
    histograms = holder.histograms(nodes)
    for depth in range(max_depth):
        best = splitter.choose(totals, histograms, columns)
        chosen = np.flatnonzero(best.is_worthwhile)
        if len(chosen) == 0:
            break
        splits = draft.split(nodes, best, chosen)
        holder.divide(splits)
        left_sums = best.left_sums[chosen]
        totals = np.stack([left_sums, totals[chosen] - left_sums], axis=1).reshape(-1, 2)
        draft.totals.append(totals)
        nodes = np.stack([splits.lefts, splits.rights], axis=1).ravel()
        if depth + 1 < max_depth:
            histograms = _children_histograms(holder, histograms[chosen], nodes, totals)
    return draft.finish(leaves)


def _children_histograms(holder: RowHolder, parents: Sums, nodes: Nodes, totals: Sums) -> Sums:
    """Histograms of the children, left and right of each parent in turn."""
    hessians = totals[:, 1].reshape(-1, 2)
    lighter = (hessians[:, 1] < hessians[:, 0]).astype(np.intp)
    pairs = np.arange(len(parents))
    asked = holder.histograms(nodes.reshape(-1, 2)[pairs, lighter])
    children = np.empty((len(parents), 2, *parents.shape[1:]), dtype=np.int64)
    children[pairs, lighter] = asked
    children[pairs, 1 - lighter] = parents - asked
    return children.reshape(-1, *parents.shape[1:])

"""Trees that XGBoost grew on ranks and values, in numbers of cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.columns import Column, RankColumn
from opboost.trees.tree import Tree


def by_cuts(trees: Sequence[Tree], columns: Sequence[Column]) -> tuple[tuple[Tree, ...], tuple[Values, ...]]:
    """The trees with numbers of cuts in place of thresholds, and per column the thresholds that these stand for."""
    trees = [_on_ranks(tree, columns) for tree in trees]
    used: list[list[float]] = [[] for _ in columns]
    for tree in trees:
        for node in np.flatnonzero(~tree.is_leaf):
            used[tree.columns[node]].append(float(tree.thresholds[node]))
    cuts = tuple(np.unique(np.array(thresholds, np.float64)) for thresholds in used)
    return tuple(_numbered(tree, cuts) for tree in trees), cuts


def _on_ranks(tree: Tree, columns: Sequence[Column]) -> Tree:
    """The tree with whole ranks as thresholds, also where it was grown on the cells of an agreed grid.

    Where all present values go right, its children are exchanged.
    """
    ends = [_ends(column) if isinstance(column, RankColumn) else np.zeros(1) for column in columns]
    of_ranks = np.array([isinstance(column, RankColumn) for column in columns])
    highest = np.array([len(own) - 1 for own in ends])
    is_rank = ~tree.is_leaf & of_ranks[tree.columns]
    ranks = np.minimum(np.floor(tree.thresholds), highest[tree.columns])
    is_before = is_rank & (ranks < 0)
    ranks = np.where(is_before, highest[tree.columns], ranks)
    for node in np.flatnonzero(is_rank):
        ranks[node] = ends[tree.columns[node]][int(ranks[node])]
    return replace(
        tree,
        thresholds=np.where(is_rank, ranks, tree.thresholds),
        missing_left=tree.missing_left ^ is_before,
        lefts=np.where(is_before, tree.rights, tree.lefts),
        rights=np.where(is_before, tree.lefts, tree.rights),
    )


def _ends(column: RankColumn) -> Values:
    """The last rank of each number that XGBoost saw: of each rank itself, or of each cell."""
    ends = np.arange(column.n_ranks) if column.cuts is None else np.append(column.cuts, column.n_ranks - 1)
    return ends.astype(np.float64)


def _numbered(tree: Tree, cuts: Sequence[Values]) -> Tree:
    numbers = tree.thresholds.copy()
    for node in np.flatnonzero(~tree.is_leaf):
        numbers[node] = np.searchsorted(cuts[tree.columns[node]], tree.thresholds[node])
    return replace(tree, thresholds=numbers)

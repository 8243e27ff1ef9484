"""Trees grown on noisy sums: splits from noisy histograms, or among one random cut per column.

A node inherits the sums that its parent's split left for it, and leaves are made of them: the last level asks nothing.
Each level is asked as a whole. A child cuts a column only within the bins that its ancestors' cuts have left to it:
bins up to the cut go left, so a left child keeps the cut's own bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums, Values
from opboost.horizontal.federated.query_holder import QueryHolder
from opboost.horizontal.federated.weight_updates import LeafRule, WeightUpdate
from opboost.trees.complete import Cuts, LeafValues, Uniforms, splits_of, tree_of
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

# A split is taken if it gains more than this.
LEAST_NOISY_GAIN = 1e-7


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes whose splits are to be chosen.

    Attributes
    ----------
    nodes : ndarray of int32, shape (n_nodes,)
    sums : ndarray of int64, shape (n_nodes, 2)
        Noisy.
    limits : ndarray of int64, shape (n_nodes, 2, n_columns)
        The first and the last bin of each column that may reach the node.
    """

    nodes: Nodes
    sums: Sums
    limits: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best split of every node of a level; all arrays begin with ``(n_nodes,)``.

    Attributes
    ----------
    gains : ndarray of float64
        Minus infinity where nothing can be cut.
    places : ndarray of int64
        Of the column, among those of the tree.
    cuts : ndarray of int64
    missing_left : ndarray of bool
    left, right : ndarray of int64, shape (n_nodes, 2)
        Noisy sums of the children.
    """

    gains: Values
    places: NDArray[np.int64]
    cuts: NDArray[np.int64]
    missing_left: Mask
    left: Sums
    right: Sums


class NoisyRule(Protocol):
    """Split rule on noisy sums."""

    def root_sums(self, holder: QueryHolder, columns: NDArray[np.int64]) -> Sums:
        """Begin a tree: the sums of its root, shape ``(1, 2)``."""

    def choose(self, level: Level, holder: QueryHolder) -> Chosen:
        """The best split of each node."""


class HistogramRule:
    """Split rule on noisy histograms: every cut of every column.

    With a single column, the histogram of the root serves all levels: the bins of a node are some of its bins.

    Parameters
    ----------
    update : WeightUpdate
    leaf : LeafRule
    """

    def __init__(self, update: WeightUpdate, leaf: LeafRule) -> None:
        self._update = update
        self._leaf = leaf
        self.root: Sums = np.zeros((1, 2, 0, 0), np.int64)
        self._columns: NDArray[np.int64] = np.zeros(0, np.int64)

    def root_sums(self, holder: QueryHolder, columns: NDArray[np.int64]) -> Sums:
        self._columns = columns
        self.root = holder.histograms(np.zeros(1, np.int32), columns)
        # Every column's bins add up to the root; their mean has the least noise.
        return np.rint(self.root.sum(axis=3).mean(axis=2)).astype(np.int64)

    def choose(self, level: Level, holder: QueryHolder) -> Chosen:
        histograms = self._histograms(level, holder)
        bins = np.arange(histograms.shape[3])
        low, high = level.limits[:, 0, :, None], level.limits[:, 1, :, None]
        histograms = np.where(((bins >= low) & (bins <= high))[:, None], histograms, 0)
        left = np.cumsum(histograms, axis=3)
        right = left[..., -1:] - left
        gains = noisy_split_gains(level.sums, left, right, self._update, self._leaf)
        gains = np.where((bins >= low) & (bins < high), gains, -np.inf).reshape(len(level.nodes), -1)
        best, at = gains.argmax(axis=1), np.arange(len(level.nodes))
        places, cuts = np.divmod(best, len(bins))
        return Chosen(
            gains[at, best],
            places,
            cuts,
            np.ones(len(at), np.bool_),
            left[at, :, places, cuts],
            right[at, :, places, cuts],
        )

    def _histograms(self, level: Level, holder: QueryHolder) -> Sums:
        if level.nodes[0] == 0:
            return self.root
        if len(self._columns) == 1:
            return np.repeat(self.root, len(level.nodes), axis=0)
        return holder.histograms(level.nodes, self._columns)


class OneCutRule:
    """Partially random split rule: one random cut per node and column, of which the best is taken.

    Parameters
    ----------
    update : WeightUpdate
    leaf : LeafRule
    uniforms : callable
    """

    def __init__(self, update: WeightUpdate, leaf: LeafRule, *, uniforms: Uniforms) -> None:
        self._update = update
        self._leaf = leaf
        self._uniforms = uniforms
        self._columns: NDArray[np.int64] = np.zeros(0, np.int64)

    def root_sums(self, holder: QueryHolder, columns: NDArray[np.int64]) -> Sums:
        self._columns = columns
        return holder.totals(np.zeros(1, np.int32))

    def choose(self, level: Level, holder: QueryHolder) -> Chosen:
        low, high = level.limits[:, 0], level.limits[:, 1]
        n_nodes, n_columns = low.shape
        drawn = self._uniforms(n_nodes * (n_columns + 1)).reshape(n_nodes, -1)
        cuts = low + (drawn[:, 1:] * np.maximum(high - low, 0)).astype(np.int64)
        missing_left = drawn[:, 0] < 0.5
        left = holder.left_sums(level.nodes, self._columns, cuts, missing_left)
        right = level.sums[:, :, None] - left
        gains = np.where(high > low, noisy_split_gains(level.sums, left, right, self._update, self._leaf), -np.inf)
        places, at = gains.argmax(axis=1), np.arange(n_nodes)
        return Chosen(
            gains[at, places], places, cuts[at, places], missing_left, left[at, :, places], right[at, :, places]
        )


def noisy_split_gains(sums: Sums, left: Sums, right: Sums, update: WeightUpdate, leaf: LeafRule) -> Values:
    """Half of the gain of each cut, shape of `left` without its second axis."""
    node = leaf.gain(*update.read(sums)).reshape(len(sums), *[1] * (left.ndim - 2))
    return (leaf.gain(*update.read(left)) + leaf.gain(*update.read(right)) - node) / 2


def grow_noisy_tree(
    holder: QueryHolder,
    *,
    rule: NoisyRule,
    columns: NDArray[np.int64],
    update: WeightUpdate,
    leaf_values: LeafValues,
    axes: HistogramAxes,
    depth: int,
) -> Tree:
    """Grow a tree level by level, as long as splits have a gain.

    Parameters
    ----------
    holder : QueryHolder
        After ``start_tree``.
    rule : NoisyRule
    columns : ndarray of int64
        That this tree may use.
    update : WeightUpdate
    leaf_values : callable
        From noisy sums of shape ``(n_nodes, 2)`` to values, learning rate included.
    axes : HistogramAxes
    depth : int
        At least 1.

    Returns
    -------
    Tree
        In bins. Without gains and covers.

    Notes
    -----
    Privacy: post-processing of the holder's answers. A node whose noisy H is negative stays a leaf.
    """
    n_bins = axes.sizes[columns] - 1
    limits = np.stack([np.zeros(len(columns), np.int64), n_bins - 1])[None]
    level = Level(np.zeros(1, np.int32), rule.root_sums(holder, columns), limits)
    all_sums, splits = [level.sums], []
    n_nodes = 1
    for _ in range(depth):
        chosen = rule.choose(level, holder)
        is_split = (chosen.gains > LEAST_NOISY_GAIN) & (update.read(level.sums)[1] >= 0)
        if not is_split.any():
            break
        new_splits = _splits(level, chosen, is_split, columns, axes, n_nodes)
        holder.divide(new_splits)
        splits.append(new_splits)
        n_nodes += 2 * len(new_splits.nodes)
        level = _children(level, chosen, np.flatnonzero(is_split), new_splits)
        all_sums.append(level.sums)
    return tree_of(splits, leaf_values(np.concatenate(all_sums)), axes)


def _splits(
    level: Level, chosen: Chosen, is_split: Mask, columns: NDArray[np.int64], axes: HistogramAxes, n_nodes: int
) -> Splits:
    cut_columns = columns[chosen.places[is_split]].astype(np.int32)
    cuts = Cuts(cut_columns, chosen.cuts[is_split].astype(np.int32), chosen.missing_left[is_split])
    return splits_of(level.nodes[is_split], cuts, axes, first_child=n_nodes)


def _children(level: Level, chosen: Chosen, at: NDArray[np.intp], splits: Splits) -> Level:
    """The children of the nodes that split, siblings side by side."""
    n, places = len(at), chosen.places[at]
    nodes = np.stack([splits.lefts, splits.rights], axis=1).ravel()
    sums = np.stack([chosen.left[at], chosen.right[at]], axis=1).reshape(2 * n, 2)
    limits = np.repeat(level.limits[at], 2, axis=0)
    limits[2 * np.arange(n), 1, places] = chosen.cuts[at]
    limits[2 * np.arange(n) + 1, 0, places] = chosen.cuts[at] + 1
    return Level(nodes, sums, limits)
